from argparse import Namespace
from threading import Thread
from types import SimpleNamespace

import pytest

from ostraka import answerers
from ostraka.answerer_options import find_answerer
from ostraka.answerers import Outcome, Server
from ostraka.command import main


class Echo(Server):
    """Answers a body with itself; `bad` is a fault of ours."""

    def _ask(self, body):
        if body == b"bad":
            raise ZeroDivisionError
        return Outcome(body, is_answer=True)


@pytest.mark.parametrize("concurrency", [1, 3, 50])
def test_outcomes_keep_the_order_of_their_bodies(concurrency):
    bodies = [str(number).encode() for number in range(40)]
    server = Echo("http://127.0.0.1:1", concurrency, None)
    assert [outcome.body for outcome in server.answer(bodies)] == bodies


def test_a_fault_in_a_thread_is_raised_where_the_outcome_is_waited_for():
    outcomes = Echo("http://127.0.0.1:1", 2, None).answer([b"good", b"bad", b"good"])
    assert next(outcomes).body == b"good"
    with pytest.raises(ZeroDivisionError):
        next(outcomes)


def test_fewer_threads_than_asked_for_do(monkeypatch):
    """Where a container allows no more."""
    start, started = Thread.start, []

    def start_two(thread):
        if len(started) == 2:
            raise RuntimeError("can't start new thread")
        started.append(thread)
        start(thread)

    monkeypatch.setattr(Thread, "start", start_two)
    bodies = [str(number).encode() for number in range(20)]
    assert [outcome.body for outcome in Echo("http://127.0.0.1:1", 9, None).answer(bodies)] == bodies
    with pytest.raises(RuntimeError):
        next(Echo("http://127.0.0.1:1", 9, None).answer(bodies))


def waits_of_a_busy_server(monkeypatch, asked_ms):
    waited = []
    monkeypatch.setattr(answerers.time, "sleep", waited.append)
    busy = SimpleNamespace(status=503, headers={"retry-after-ms": asked_ms}, request=lambda *_: None, read=lambda: b"")
    busy.getresponse = lambda: busy
    monkeypatch.setattr(Server, "_connect", lambda _: busy)
    (outcome,) = list(Server("http://127.0.0.1:1", 1, None).answer([b"{}"]))
    assert not outcome.is_answer
    return waited


@pytest.mark.parametrize("asked", ["soon", "-1", "1e3", "99999999999", "\u0663", ""])
def test_a_wait_that_makes_no_sense_is_not_waited(monkeypatch, asked):
    assert waits_of_a_busy_server(monkeypatch, asked) == [0.5, 1, 2, 4, 8]


def test_a_wait_is_as_long_as_the_server_asks_and_grows_where_that_is_too_short(monkeypatch):
    assert waits_of_a_busy_server(monkeypatch, "100") == [0.5, 1, 2, 4, 8]
    assert waits_of_a_busy_server(monkeypatch, "3000") == [3, 3, 3, 4, 8]


def test_a_wait_of_hours_is_waited_a_minute_at_a_time(monkeypatch):
    assert waits_of_a_busy_server(monkeypatch, "7200000") == [answerers.MOST_WAIT_S] * 5


@pytest.mark.parametrize("key", ["\u043a\u043b\u044e\u0447", "a b", "a\nb", "\x7f"])
def test_a_key_that_no_header_can_hold_is_one_line(monkeypatch, capsys, tmp_path, key):
    (tmp_path / "q.json").write_text("{}")
    monkeypatch.setenv("JEV_API_KEY", key)
    assert main(["decide", str(tmp_path / "q.json"), "--server=http://127.0.0.1:1"]) == 1
    assert capsys.readouterr().err == "ostraka: JEV_API_KEY should be printable ASCII without spaces\n"


def test_a_key_from_a_file_may_end_its_line(monkeypatch):
    monkeypatch.setenv("JEV_API_KEY", "secret\n")
    values = Namespace(server="http://127.0.0.1:1", model=None, concurrency=1, threads=1)
    assert find_answerer(values)._headers["Authorization"] == "Bearer secret"
