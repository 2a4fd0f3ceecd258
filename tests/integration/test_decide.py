"""`ostraka decide` over files of requests, with a model of its own and against a running server."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from ostraka.command import main
from ostraka_shared.model_folder import ModelFolder
from tests.cluster import Cluster, wait_for


def body(state: object) -> bytes:
    return json.dumps({"model": "jev-latest", "state": state, "questions": {"q": {"type": "noul"}}}).encode()


def decide(*arguments: object, stdin: bytes | None = None) -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, "-m", "ostraka", "decide", *map(str, arguments)]
    return subprocess.run(command, input=stdin, capture_output=True, check=False)


@pytest.fixture
def requests(tmp_path: Path) -> Path:
    """Twenty good requests with a refused one, a broken one and a blank line among them."""
    lines = [body(f"state {i}" * (i + 1)) for i in range(20)]
    lines[3] = body(3)
    lines[11] = b'{"state": '
    lines.insert(7, b"  ")
    path = tmp_path / "requests.jsonl"
    path.write_bytes(b"\n".join(lines) + b"\n")
    return path


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


def test_lines_from_stdin_to_stdout(fake_model: ModelFolder) -> None:
    done = decide("-", "--lines", f"--model={fake_model.path}", stdin=body("a") + b"\n" + body("b"))
    assert (done.returncode, len(done.stdout.splitlines()), done.stderr) == (0, 2, b"")


def test_what_cannot_work_is_one_clear_line(tmp_path: Path, requests: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cases = {
        (tmp_path / "none.jsonl",): f"{tmp_path / 'none.jsonl'}: No such file or directory",
        (requests, "--resume"): "--resume goes on with a file of lines: give --output too",
        (requests, "--server=ftp://x"): "--server is not an address like http://127.0.0.1:8017",
        (requests, "--server=http://[::1"): "--server is not an address like http://127.0.0.1:8017",
        (requests, "--server=http://h:port"): "--server is not an address like http://127.0.0.1:8017",
        (
            requests,
            "--server=http://me:secret@h",
        ): "--server has a user or a password in it: a key is given as JEV_API_KEY",
        (
            requests,
            "--cache-dir=~nobody-here",
        ): "--cache-dir: ~nobody-here names no folder: Could not determine home directory.",
        (requests, "--server=http://127.0.0.1:9", "--concurrency=0"): "--concurrency must be at least 1, not 0",
    }
    for arguments, line in cases.items():
        code = main(["decide", *map(str, arguments)])
        assert (code, capsys.readouterr().err) == (1, f"ostraka: {line}\n")


@pytest.mark.parametrize(
    ("kept", "said"),
    [
        (b"my notes", "line 1 is no answer of an earlier run: resume with its own file"),
        (b'{"detail":[]}\n[1]\n', "line 2 is no answer of an earlier run: resume with its own file"),
        (b'{"detail":[]}\n' * 21, "has 21 answers, and there are 20 requests: resume with its own file"),
    ],
)
def test_a_file_of_another_kind_is_not_gone_on_with(requests: Path, tmp_path: Path, fake_model, kept, said) -> None:
    output = tmp_path / "mine"
    output.write_bytes(kept)
    done = decide(requests, f"--output={output}", "--resume", f"--model={fake_model.path}")
    assert (done.returncode, output.read_bytes()) == (1, kept)
    assert said in done.stderr.decode()


def test_a_file_of_requests_is_not_its_own_output(requests: Path, fake_model) -> None:
    before = requests.read_bytes()
    done = decide(requests, f"--output={requests}", "--resume", f"--model={fake_model.path}")
    assert (done.returncode, requests.read_bytes()) == (1, before)


def test_requests_from_a_pipe_with_a_name(tmp_path: Path, fake_model: ModelFolder) -> None:
    pipe = tmp_path / "pipe.jsonl"
    os.mkfifo(pipe)
    with subprocess.Popen(["cp", "/dev/stdin", str(pipe)], stdin=subprocess.PIPE) as writer:
        assert writer.stdin
        writer.stdin.write(body("a") + b"\n" + body("b"))
        writer.stdin.close()
        done = decide(pipe, f"--model={fake_model.path}")
    assert (done.returncode, len(done.stdout.splitlines())) == (0, 2)
