"""What a process of ours writes on its standard error, whatever that leads to."""

import fcntl
import json
import logging
import os
import select
import socket
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = """
import logging, structlog
from ostraka_shared.logs import configure_logs
log = structlog.get_logger()
configure_logs("worker w3", {format!r}, {level!r})
log.debug("quiet")
log.info("ready", cores=(0, 1), name="θόλος", path=__import__("pathlib").Path("/x"))
log.warning("two\\nlines", detail="a\\nb", odd="\\ud800")
logging.getLogger("uvicorn.error").warning("from %s", "a library")
logging.getLogger("uvicorn.error").info("an info of a library")
try:
    1 / 0
except ZeroDivisionError:
    log.exception("crashed")
    logging.getLogger("other").exception("crashed there")
"""


def run(log_format="json", level="info"):
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT.format(format=log_format, level=level)],
        capture_output=True,
        text=True,
        timeout=30,
        check=True,
    )
    assert done.stdout == ""
    return done.stderr.splitlines()


@pytest.fixture(scope="module")
def json_lines():
    return run()


def test_an_event_is_one_line_of_json(json_lines):
    events = [json.loads(line) for line in json_lines]
    assert [event["event"] for event in events] == [
        "ready",
        "two\nlines",
        "from a library",
        "an info of a library",
        "crashed",
        "crashed there",
    ]
    assert all(event["process"] == "worker w3" for event in events)
    assert all(event["timestamp"].endswith("Z") for event in events)
    assert [event["level"] for event in events] == ["info", "warning", "warning", "info", "error", "error"]


def test_values_are_kept(json_lines):
    event = json.loads(json_lines[0])
    assert event["cores"] == [0, 1]
    assert event["name"] == "θόλος"
    assert "θόλος" in json_lines[0]
    assert "/x" in event["path"]


def test_a_traceback_stays_in_its_line(json_lines):
    for line in json_lines[-2:]:
        assert "ZeroDivisionError" in json.loads(line)["exception"]


def test_the_level_holds_for_libraries_too():
    assert [json.loads(line)["event"] for line in run(level="warning")][:2] == ["two\nlines", "from a library"]
    assert json.loads(run(level="debug")[0])["event"] == "quiet"


def test_text_is_for_people():
    lines = run("text")
    assert "ready" in lines[0]
    assert "worker w3" in lines[0]
    with pytest.raises(ValueError):
        json.loads(lines[0])


def test_auto_is_json_where_stderr_is_no_terminal():
    assert json.loads(run("auto")[0])["event"] == "ready"


FULL_DISK = """
import sys
from ostraka_shared.logs import configure_logs
import logging, structlog
configure_logs("worker w3")
for _ in range(2000):
    structlog.get_logger().info("ready", text="x" * 100)
    logging.getLogger("other").warning("from a library")
print("is here")
"""


def test_a_line_that_cannot_be_written_is_lost_and_nothing_else():
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-c", FULL_DISK], stdout=subprocess.PIPE, stderr=full, text=True, timeout=30, check=False
        )
    assert (done.returncode, done.stdout) == (0, "is here\n")


def test_a_reader_that_has_gone_is_missed_by_nobody():
    reader, writer = os.pipe()
    os.close(reader)
    try:
        done = subprocess.run(
            [sys.executable, "-c", FULL_DISK], stdout=subprocess.PIPE, stderr=writer, text=True, timeout=30, check=False
        )
    finally:
        os.close(writer)
    assert (done.returncode, done.stdout) == (0, "is here\n")


def test_a_reader_that_stands_still_stops_nobody():
    reader, writer = os.pipe()
    try:
        done = subprocess.run(
            [sys.executable, "-c", FULL_DISK], stdout=subprocess.PIPE, stderr=writer, text=True, timeout=30, check=False
        )
        first = os.read(reader, 1 << 16).splitlines()[0]
    finally:
        os.close(reader)
        os.close(writer)
    assert (done.returncode, done.stdout, json.loads(first)["event"]) == (0, "is here\n", "ready")


INTERRUPTED = """
import signal, structlog
from ostraka_shared import log_stream
from ostraka_shared.logs import configure_logs
from ostraka_shared.stray_signals import log_stray_signals
write = log_stream.LossyStream.write
def interrupted(stream, line):
    if "ready" in line:
        signal.raise_signal(signal.SIGUSR1)
    return write(stream, line)
log_stream.LossyStream.write = interrupted
configure_logs("worker w3", "json")
log_stray_signals()
structlog.get_logger().info("ready")
"""


def test_a_signal_that_comes_while_a_line_is_written_is_said_and_stops_nobody():
    done = subprocess.run([sys.executable, "-c", INTERRUPTED], capture_output=True, timeout=30, check=True)
    events = [json.loads(line) for line in done.stderr.splitlines()]
    assert [event["event"] for event in events] == ["signal_ignored", "ready"]


LONG_LINES = """
import logging, structlog
from ostraka_shared.logs import configure_logs
configure_logs("worker w3", {format!r})
log = structlog.get_logger()
def deeper(n):
    return 1 / 0 if not n else deeper(n - 1) if n % 2 else (lambda: deeper(n - 1))()
log.info("whole", text="x" * 700)
log.warning("long", text="a" * 50_000 + "z", request="req_1")
log.warning("wide", many=list(range(20_000)), request="req_2")
log.warning("foreign", text="θ" * 800, other="θ" * 800, third="θ" * 800)
try:
    deeper(300)
except ZeroDivisionError:
    log.exception("deep")
logging.getLogger("other").warning("l" * 50_000)
for _ in range(500):
    log.warning("long", text="a" * 50_000)
print("is here")
"""


@pytest.mark.parametrize("log_format", ["json", "text"])
def test_a_line_of_any_length_is_written_whole_or_not_at_all_and_waits_for_nobody(log_format):
    """The pipe is filled, with a rest of room that is less than a line."""
    reader, writer = os.pipe()
    try:
        done = subprocess.run(
            [sys.executable, "-c", LONG_LINES.format(format=log_format)],
            stdout=subprocess.PIPE,
            stderr=writer,
            text=True,
            timeout=30,
            check=False,
        )
        written = os.read(reader, 1 << 20)
        flags = fcntl.fcntl(writer, fcntl.F_GETFL)
    finally:
        os.close(reader)
        os.close(writer)
    assert (done.returncode, done.stdout) == (0, "is here\n")
    assert not flags & os.O_NONBLOCK, "it is its caller's too"
    lines = written.splitlines(keepends=True)
    if log_format == "json":
        assert max(map(len, lines)) <= select.PIPE_BUF
        events = {event["event"]: event for event in map(json.loads, lines)}
        assert len(events["whole"]["text"]) == 700
        assert events["long"]["text"].startswith("aaa")
        assert (events["wide"]["is_cut"], events["wide"]["request"]) == (True, "req_2")
        assert events["foreign"]["is_cut"]
        assert events["deep"]["exception"].endswith("ZeroDivisionError: division by zero")


@pytest.mark.parametrize("kind", [socket.SOCK_STREAM, socket.SOCK_DGRAM])
def test_a_socket_whose_reader_stands_still_stops_nobody(kind):
    """As the journal's, which systemd gives a service for its standard error."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, kind)
    with ours, theirs:
        done = subprocess.run(
            [sys.executable, "-c", LONG_LINES.format(format="json")],
            stdout=subprocess.PIPE,
            stderr=theirs,
            text=True,
            timeout=30,
            check=False,
        )
        assert (done.returncode, done.stdout) == (0, "is here\n")
        assert json.loads(ours.recv(1 << 16).splitlines()[0])["event"] == "whole"


def test_this_process_was_left_alone():
    assert not any(type(handler) is logging.StreamHandler for handler in logging.getLogger().handlers)
