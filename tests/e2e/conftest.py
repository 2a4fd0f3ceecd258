from collections.abc import Iterator
from pathlib import Path

import pytest

from ostraka_shared.model_folder import ModelFolder
from ostraka_worker.build.builder import ensure_embedded
from ostraka_worker.build.catalog import DEFAULT_PRECISION
from ostraka_worker.build.progress import Lines
from tests.cluster import Cluster, running


@pytest.fixture(scope="session")
def embedded_model() -> ModelFolder:
    """In the user's own cache: built by the first run, found by the next."""
    return ensure_embedded(Path("~/.cache/ostraka").expanduser(), DEFAULT_PRECISION, Lines())


@pytest.fixture(scope="module")
def real_cluster(embedded_model: ModelFolder) -> Iterator[Cluster]:
    with running(embedded_model.path) as cluster:
        yield cluster
