import json
import logging
import os
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


def test_this_process_was_left_alone():
    assert not any(type(handler) is logging.StreamHandler for handler in logging.getLogger().handlers)
