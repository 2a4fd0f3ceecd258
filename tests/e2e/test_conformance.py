"""The parts of jevcompat and jevbench whose outcome depends on the model, against the real one."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from jevcompat import runner

from ostraka_shared.model_folder import ModelFolder
from tests.cluster import Cluster, running
from tests.conformance.batch_trials import check_batch_trials

pytestmark = pytest.mark.e2e

CASES = {
    "noul-basic",
    "choice-basic",
    "score-levels",
    "choice-ambiguous",
    "multi-question",
    "semantics-question-id",
    "semantics-batching",
    "semantics-question-order",
    "sdk-python",
}
REQUIREMENTS = {
    "noul.answer",
    "choice.answer",
    "choice.probability-keys",
    "choice.distribution",
    "choice.argmax",
    "score.answer",
    "score.legend",
    "score.distribution",
    "score.expectation",
    "confidence.range",
    "confidence.formula",
    "response.finite",
    "semantics.question-id",
    "semantics.batching",
    "semantics.question-order",
    "dropin.sdk-python",
}


@pytest.fixture(scope="module")
def patient(embedded_model: ModelFolder) -> Iterator[Cluster]:
    """On a busy machine an answer may take long, and is right none the less."""
    with running(embedded_model.path, "--deadline-ms=60000") as cluster:
        yield cluster


@pytest.mark.timeout(300)  # 40 s where nothing else runs
def test_the_real_model_meets_what_it_decides(patient: Cluster) -> None:
    report = runner.run(patient.url, timeout=60, only=CASES)
    assert [finding for result in report.results for finding in result.findings] == []
    assert {result.id for result in report.results if result.status == "pass"} >= REQUIREMENTS


@pytest.mark.timeout(300)
def test_answers_do_not_depend_on_batch_mates(patient: Cluster, tmp_path: Path) -> None:
    """jevbench's smallest suite; `make conformance` runs the next larger."""
    assert sum(check_batch_trials(patient.url, tmp_path, "examples").values()) >= 5
