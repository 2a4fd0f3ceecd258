"""The parts of the overload, soak and overhead benchmarks that compute: on figures whose answer is known."""

import contextlib
import socket

import pytest

from benchmarks.faults import idle_connections
from benchmarks.faults.overhead import read_timing
from benchmarks.faults.overload import by_fifths, summarize
from benchmarks.faults.raw_client import Ended, RawClient
from benchmarks.faults.wire import content_length, parse_head


def told(status: int, due: float, ended: float, sent: float | None = None) -> Ended:
    return Ended(due, due if sent is None else sent, ended, status)


def test_an_overload_is_kept_where_each_of_its_figures_is() -> None:
    found = [*[told(200, 0.0, 1.9)] * 95, *[told(529, 0.0, 0.03)] * 200]
    seen = summarize(found, capacity=10.0, seconds=10.0, deadline_s=2.0)
    assert (seen.offered, seen.goodput, seen.let_in, seen.refused, seen.late) == (29.5, 9.5, 95, 200, 0)
    assert seen.broken() == []


@pytest.mark.parametrize(
    ("spoilt", "says"),
    [
        ([told(200, 0.0, 2.1)] * 2, "p99 of what was let in"),
        ([told(504, 0.0, 2.01)] * 2, "p99 of what was let in"),
        ([told(529, 0.0, 0.06)] * 3, "p99 of the refusals"),
        ([told(500, 0.0, 0.1)], "neither right nor"),
    ],
)
def test_an_overload_names_what_is_not_kept(spoilt: list[Ended], says: str) -> None:
    found = [*[told(200, 0.0, 1.9)] * 95, *[told(529, 0.0, 0.03)] * 200, *spoilt]
    (broken,) = summarize(found, capacity=10.0, seconds=10.0, deadline_s=2.0).broken()
    assert says in broken


def test_what_is_answered_too_late_is_no_goodput() -> None:
    found = [*[told(200, 0.0, 1.9)] * 50, *[told(200, 0.0, 2.1)] * 50]
    seen = summarize(found, capacity=10.0, seconds=10.0, deadline_s=2.0)
    assert (seen.goodput, seen.late) == (5.0, 50)
    assert any("50% of the capacity" in each for each in seen.broken())


def test_what_is_answered_after_the_last_was_offered_took_that_time_too() -> None:
    found = [told(200, float(due), due + 2.0) for due in range(11)]
    assert summarize(found, capacity=10.0, seconds=10.0, deadline_s=2.0).goodput == pytest.approx(11 / 12)


def test_what_was_answered_is_told_by_fifths_of_the_time_in_which_was_offered() -> None:
    found = [told(200, due / 10, due / 10 + (1.0 if due < 20 else 0.01)) for due in range(101)]
    assert by_fifths([*found, told(529, 0.0, 0.01)]) == [5.0, 15.0, 10.0, 10.0, 10.0]


def test_a_refusal_is_timed_from_when_it_was_sent_and_an_answer_from_when_it_was_due() -> None:
    seen = summarize([told(200, 0.0, 1.0, 0.5), told(529, 0.0, 0.52, 0.5)], 1.0, 1.0, 2.0)
    assert (seen.let_in_p99_s, seen.refused_p99_s) == (1.0, pytest.approx(0.02))


def test_a_response_head_is_read() -> None:
    head = b"HTTP/1.1 529 \r\nContent-Length: 12\r\nServer-Timing: queue;dur=1.5, total;dur=2\r\n\r\n"
    status, headers = parse_head(head)
    assert (status, headers["content-length"], content_length(head)) == (529, "12", 12)
    assert content_length(b"HTTP/1.1 204 \r\ndate: x\r\n\r\n") == 0
    assert read_timing(headers["server-timing"]) == {"queue": 1500.0, "total": 2000.0}


def test_the_raw_client_keeps_its_connections_and_reads_answers_that_come_in_pieces() -> None:
    """The server has them in three pieces, and each request's number back as its status."""
    with socket.create_server(("127.0.0.1", 0)) as listener, contextlib.closing(RawClient(url_of(listener))) as client:
        for number in (201, 202):
            client.send(b"%d" % number, due=number)
        servers = [listener.accept()[0] for _ in range(2)]
        assert client.in_flight == 2
        assert list(client.wait(0.0)) == []
        ended = []
        for server in servers:
            status = server.recv(10)
            for piece in (b"HTTP/1.1 " + status, b" \r\nContent-Length: 3\r\n\r\n1", b"23"):
                server.sendall(piece)
                ended += client.wait(5.0)
        assert sorted((each.due, each.status) for each in ended) == [(201, 201), (202, 202)]
        client.send(b"203", due=0.0)
        assert (client.in_flight, servers[1].recv(10)) == (1, b"203"), "the one that was free last"
        servers[0].close()
        assert (list(client.wait(5.0)), client.in_flight) == ([], 1), "the other one rested"
        servers[1].close()
        with pytest.raises(ConnectionError):
            list(client.wait(5.0))


def url_of(listener: socket.socket) -> str:
    return f"http://127.0.0.1:{listener.getsockname()[1]}"


def test_benchmarks_that_no_other_test_runs_can_be_imported() -> None:
    assert idle_connections.WORKERS
