"""jevcompat's whole suite against the real server, whose model is the fake one. tests/e2e asks the real one."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from jevcompat.mock import MockConfig, make_server

from tests.cluster import Cluster, running
from tests.conformance.batch_trials import check_batch_trials
from tests.conformance.compatibility import check_compatibility, failed, run_jevcompat
from tests.fake_model import make_fake_model

KEY = "a-key"
CONTEXT_TOKENS = 32_768
"""The fake tokenizer makes a token of each byte: 255 options are 11,000."""


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_fake_model(tmp_path_factory.mktemp("jevcompat") / "model", context_tokens=CONTEXT_TOKENS).path


@pytest.mark.parametrize(
    ("environment", "options", "should"), [({}, (), 13), ({"JEV_API_KEY": KEY}, (f"--key={KEY}",), 15)]
)
def test_every_requirement_is_met(
    model: Path, tmp_path: Path, environment: dict[str, str], options: tuple[str, ...], should: int
) -> None:
    with running(model, f"--run-dir={tmp_path / 'run'}", env=environment) as cluster:
        check_compatibility(cluster.url, tmp_path, *options, must=32, should=should)


@contextmanager
def mock_server(*faults: str) -> Iterator[str]:
    server = make_server(MockConfig(faults=frozenset(faults)), host="127.0.0.1", port=0)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield "http://{}:{}".format(*server.server_address[:2])
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.mark.parametrize(
    ("faults", "code", "requirements"),
    [
        (("choice-sum",), 1, ["choice.distribution"]),
        (("legend-1-based", "500-on-unknown-type"), 1, ["score.legend", "errors.no-5xx"]),
        (("batch-leaks",), 0, ["semantics.batching"]),
    ],
)
def test_a_server_with_a_fault_is_found_out(
    tmp_path: Path, faults: tuple[str, ...], code: int, requirements: list[str]
) -> None:
    """The control. A fault against a SHOULD does not show in the exit code, only in the counts."""
    with mock_server(*faults) as url:
        exit_code, report = run_jevcompat(url, tmp_path)
    assert (exit_code, failed(report)) == (code, requirements)


def test_its_batch_trials_pass(served: Cluster, tmp_path: Path) -> None:
    """All 120 of jevbench-mini; `make conformance` asks the real model."""
    assert sum(check_batch_trials(served.url, tmp_path, "jevbench-mini").values()) == 120
