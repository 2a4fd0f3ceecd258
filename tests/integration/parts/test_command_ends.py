"""How a command ends when it fails, in a process of its own: what a shell and a person see of it."""

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

DRIVER = """
import sys, types
from ostraka import command
def run(values):
    {body}
    return 0
sys.modules["made_up"] = types.SimpleNamespace(register=lambda parser: None, run=run)
command.COMMANDS["made-up"] = ("made_up", "a command of this test")
sys.exit(command.main(["made-up"]))
"""
WRITES = "sys.stdout.buffer.write(b'x' * 10)"


def start(body, stdout):
    command = [sys.executable, "-c", DRIVER.format(body=body)]
    return subprocess.Popen(command, stdout=stdout, stderr=subprocess.PIPE, text=True)


def end(running):
    """(exit code, what it said)"""
    with running:
        said = running.communicate(timeout=60)[1]
    return running.returncode, said


@pytest.mark.parametrize("body", [WRITES, f"{WRITES}; sys.stdout.flush()"])
def test_a_reader_that_has_enough_is_no_fault_to_tell(body):
    readable, writable = os.pipe()
    os.close(readable)
    with os.fdopen(writable, "wb") as pipe:
        assert end(start(body, pipe)) == (1, "")


@pytest.mark.parametrize("body", [WRITES, f"{WRITES}; sys.stdout.flush()"])
def test_a_full_disk_is_one_line(body):
    with Path("/dev/full").open("wb") as full:
        assert end(start(body, full)) == (1, "ostraka: No space left on device\n")


def test_a_file_that_may_not_be_read_is_one_line():
    body = "raise PermissionError(13, 'Permission denied', 'answers.jsonl')"
    assert end(start(body, subprocess.DEVNULL)) == (1, "ostraka: answers.jsonl: Permission denied\n")


def test_a_fault_of_ours_is_a_traceback():
    code, said = end(start("raise ZeroDivisionError", subprocess.DEVNULL))
    assert code == 1
    assert "Traceback" in said


def test_a_closed_stdout_is_no_fault():
    done = subprocess.run(
        ["sh", "-c", '"$0" -c "$1" >&-', sys.executable, DRIVER.format(body="pass")],
        stderr=subprocess.PIPE,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, b"")


def run_with_numpy(**environment):
    """(threads, OPENBLAS_NUM_THREADS) of a command that imports it."""
    body = "import numpy, os; print(len(os.listdir('/proc/self/task')), os.environ['OPENBLAS_NUM_THREADS'])"
    kept = {name: value for name, value in os.environ.items() if name != "OPENBLAS_NUM_THREADS"}
    command = [sys.executable, "-c", DRIVER.format(body=body)]
    done = subprocess.run(command, env=kept | environment, capture_output=True, text=True, timeout=60, check=True)
    return tuple(map(int, done.stdout.split()))


def test_numpy_has_one_thread_unless_more_are_asked_for():
    """By itself it starts one a core, which spin while they wait for each other."""
    assert run_with_numpy() == (1, 1)
    assert run_with_numpy(OPENBLAS_NUM_THREADS="2")[1] == 2


@pytest.mark.parametrize("module", ["configargparse", "psutil"], ids=["of the command", "of its subcommand"])
def test_ctrl_c_during_the_imports_is_an_end_without_a_word(module, tmp_path):
    (tmp_path / f"{module}.py").write_text("import os, signal\nos.kill(os.getpid(), signal.SIGINT)\n")
    environment = os.environ | {"PYTHONPATH": f"{tmp_path}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"}
    command = [sys.executable, "-m", "ostraka", "serve", "--help"]
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert (ended.returncode, ended.stderr, ended.stdout) == (-signal.SIGINT, "", "")


def test_ctrl_c_does_not_wait_for_a_server_that_does_not_answer(tmp_path):
    requests = tmp_path / "requests.jsonl"
    requests.write_text("{}\n" * 40)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(30)
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        command = [sys.executable, "-m", "ostraka", "decide", str(requests), f"--server={url}"]
        with subprocess.Popen(command, stderr=subprocess.PIPE) as running:
            client, _ = listener.accept()
            with client:
                assert client.recv(10) == b"POST /v1/s"
                running.send_signal(signal.SIGINT)
                assert running.wait(20) == 130
            assert running.stderr.read() == b""


def test_a_refusal_is_one_line_of_the_command():
    done = subprocess.run(
        [sys.executable, "-m", "ostraka", "serve", "--batch-tokens=0"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 1
    assert done.stderr == "ostraka: --batch-tokens must be at least 1, not 0\n"
