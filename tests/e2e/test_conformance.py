"""jevcompat whole, and jevbench's smallest suite of batch trials, against the real server with the real model.

In int8: 255 options are 4,000 tokens of list and as many of asking, which fp32 reads in half a minute on two cores.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from ostraka_shared.model_folder import ModelFolder
from ostraka_worker.build.builder import ensure_embedded
from ostraka_worker.build.progress import Lines
from tests.cluster import Cluster, running
from tests.conformance.batch_trials import check_batch_trials
from tests.conformance.compatibility import check_compatibility

pytestmark = pytest.mark.e2e

KEY = "a-key"
PATIENCE = "--deadline-ms=120000"
"""On a busy machine an answer may take long, and is right none the less."""


@pytest.fixture(scope="module")
def int8_model() -> ModelFolder:
    return ensure_embedded(Path("~/.cache/ostraka").expanduser(), "int8", Lines())


@pytest.fixture(scope="module")
def patient(int8_model: ModelFolder) -> Iterator[Cluster]:
    with running(int8_model.path, PATIENCE) as cluster:
        yield cluster


@pytest.mark.timeout(400)  # 11 s where nothing else runs
def test_every_requirement_is_met(patient: Cluster, tmp_path: Path) -> None:
    check_compatibility(patient.url, tmp_path, must=32, should=13)


@pytest.mark.timeout(400)
def test_every_requirement_is_met_with_a_key(int8_model: ModelFolder, tmp_path: Path) -> None:
    with running(int8_model.path, PATIENCE, env={"JEV_API_KEY": KEY}) as cluster:
        check_compatibility(cluster.url, tmp_path, f"--key={KEY}", must=32, should=15)


@pytest.mark.timeout(400)
def test_answers_do_not_depend_on_batch_mates(patient: Cluster, tmp_path: Path) -> None:
    """`make conformance` runs the next larger suite."""
    assert sum(check_batch_trials(patient.url, tmp_path, "examples").values()) >= 5
