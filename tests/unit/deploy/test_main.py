"""How a command ends when it fails, in a process of its own: what a shell and a person see of it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from ostraka.__main__ import main

DRIVER = """
import sys, types
from ostraka import __main__ as command
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


@pytest.mark.parametrize(("value", "port"), [("tcp://10.0.0.1:8017", 8017), ("9000", 9000)])
def test_a_kubernetes_services_variable_is_not_our_port(monkeypatch, value, port):
    monkeypatch.setitem(os.environ, "OSTRAKA_PORT", value)
    found = []
    monkeypatch.setattr("ostraka.serve_command.run", lambda values: found.append(values.port) or 0)
    assert main(["serve"]) == 0
    assert found == [port]
