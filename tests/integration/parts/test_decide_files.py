"""What `ostraka decide` reads and writes, without a server."""

import os
import subprocess
from pathlib import Path

import pytest

from ostraka.command import main
from ostraka_shared.model_folder import ModelFolder
from tests.fake_model import make_fake_model
from tests.integration.request_files import body, decide


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


def test_a_model_that_was_altered_answers_nothing(
    requests: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As `ostraka serve` does not start with it."""
    model = make_fake_model(tmp_path / "model")
    model.tokenizer.write_bytes(model.tokenizer.read_bytes() + b" ")
    assert main(["decide", str(requests), f"--model={model.path}"]) == 1
    said = capsys.readouterr()
    assert (said.out, "tokenizer.json was altered since it was built" in said.err) == ("", True)


def test_requests_from_a_pipe_with_a_name(tmp_path: Path, fake_model: ModelFolder) -> None:
    pipe = tmp_path / "pipe.jsonl"
    os.mkfifo(pipe)
    with subprocess.Popen(["cp", "/dev/stdin", str(pipe)], stdin=subprocess.PIPE) as writer:
        assert writer.stdin
        writer.stdin.write(body("a") + b"\n" + body("b"))
        writer.stdin.close()
        done = decide(pipe, f"--model={fake_model.path}")
    assert (done.returncode, len(done.stdout.splitlines())) == (0, 2)
