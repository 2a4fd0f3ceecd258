"""`ostraka decide` over files of requests, with a model of its own and against a running server."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from ostraka_shared.model_folder import ModelFolder
from tests.cluster import Cluster, wait_for
from tests.integration.request_files import body, decide


@pytest.fixture(params=["here", "server"])
def where(request: pytest.FixtureRequest, fake_model: ModelFolder, cluster: Cluster) -> list[str]:
    return [f"--model={fake_model.path}"] if request.param == "here" else [f"--server={cluster.url}", "--concurrency=3"]


def test_lines_are_answered_in_order_and_errors_do_not_stop(
    requests: Path, where: list[str], cluster: Cluster, tmp_path: Path
) -> None:
    output = tmp_path / "answers.jsonl"
    done = decide(requests, f"--output={output}", *where)
    assert done.returncode == 1
    assert b"2 of 20 requests were refused" in done.stderr
    sent = [line.strip() for line in requests.read_bytes().splitlines() if line.strip()]
    served = [cluster.client.post("/v1/systemone", content=each).content for each in sent]
    assert output.read_bytes().splitlines() == served


def test_an_output_is_never_written_over(requests: Path, where: list[str], tmp_path: Path) -> None:
    output = tmp_path / "answers.jsonl"
    output.write_text("mine")
    assert decide(requests, f"--output={output}", *where).returncode == 1
    assert output.read_text() == "mine"


def test_a_broken_run_goes_on_where_it_stopped(requests: Path, where: list[str], tmp_path: Path) -> None:
    whole = decide(requests, *where).stdout
    output = tmp_path / "answers.jsonl"
    output.write_bytes(whole[: len(whole) // 2])
    done = decide(requests, f"--output={output}", "--resume", *where)
    assert (done.returncode, output.read_bytes()) == (1, whole)
    assert b"2 of 20 requests were refused" in done.stderr
    again = decide(requests, f"--output={output}", "--resume", *where)
    assert (again.returncode, output.read_bytes()) == (1, whole)


def test_a_killed_run_leaves_only_what_it_finished(cluster: Cluster, tmp_path: Path, release: Path) -> None:
    requests = tmp_path / "requests.jsonl"
    requests.write_bytes(b"\n".join([body("one"), body("two"), body("<stall>"), body("four")]))
    output = tmp_path / "answers.jsonl"
    command = [
        sys.executable,
        "-m",
        "ostraka",
        "decide",
        str(requests),
        f"--output={output}",
        f"--server={cluster.url}",
    ]
    with subprocess.Popen(command) as run:
        wait_for(lambda: output.exists() and output.read_bytes().count(b"\n") == 2, "two lines are written")
        os.kill(run.pid, signal.SIGKILL)
    release.touch()
    assert decide(requests, f"--output={output}", "--resume", f"--server={cluster.url}").returncode == 0
    expected = [
        cluster.client.post("/v1/systemone", content=line).content for line in requests.read_bytes().splitlines()
    ]
    assert output.read_bytes().splitlines() == expected


def test_a_worker_lost_meanwhile_costs_no_line(cluster: Cluster, tmp_path: Path, release: Path) -> None:
    requests = tmp_path / "requests.jsonl"
    requests.write_bytes(b"\n".join([body("<stall>"), *(body(str(i)) for i in range(30))]))
    command = [sys.executable, "-m", "ostraka", "decide", str(requests), f"--server={cluster.url}"]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as run:
        stalled = wait_for(
            lambda: next((w for w in cluster.health()["workers"] if w["running_tokens"]), None), "one stalls"
        )
        os.kill(stalled["pid"], signal.SIGKILL)
        release.touch()
        answers = run.communicate(timeout=60)[0].splitlines()
    assert run.returncode == 0
    assert [list(json.loads(answer)) for answer in answers] == [["model", "answers", "usage"]] * 31
