"""jevcompat's whole suite against the real server, whose model is the fake one: 255 options are 800,000 tokens, which
the real one reads in `make conformance`. What depends on the model is asked of the real one in tests/e2e."""

import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from jevcompat.mock import MockConfig, make_server

from tests.cluster import Cluster, running
from tests.conformance.batch_trials import check_batch_trials
from tests.fake_model import make_fake_model

JEVCOMPAT = Path(sys.executable).with_name("jevcompat")
KEY = "a-key"
CONTEXT_TOKENS = 32_768
"""The fake tokenizer makes a token of each byte: 255 options are 11,000."""


def run_jevcompat(url: str, folder: Path, *options: str) -> tuple[int, dict[str, Any]]:
    report = folder / "report.json"
    command = [JEVCOMPAT, "test", url, f"--json={report}", *options]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert report.exists(), run.stdout + run.stderr
    return run.returncode, json.loads(report.read_text(encoding="utf-8"))


def counts(report: dict[str, Any], level: str) -> tuple[int, int]:
    """(passed, tested)"""
    return report["summary"][level]["passed"], report["summary"][level]["tested"]


def failed(report: dict[str, Any]) -> list[str]:
    return [result["id"] for result in report["results"] if result["status"] not in ("pass", "skip")]


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
        code, report = run_jevcompat(cluster.url, tmp_path, *options)
    assert failed(report) == []
    assert (code, counts(report, "MUST"), counts(report, "SHOULD")) == (0, (32, 32), (should, should))


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
