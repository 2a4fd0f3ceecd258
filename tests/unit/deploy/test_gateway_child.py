"""What a gateway reports to its supervisor, also one that speaks otherwise."""

import socket
from types import SimpleNamespace

import pytest

from ostraka import children, gateway_child
from ostraka.gateway_child import GatewayChild
from ostraka.restarts import RestartPolicy
from ostraka_gateway.orders import CountBroken, Report, decode_order, encode_report
from tests.clocks import FakeClock

NOW = 1000.0


@pytest.fixture
def pair():
    """(the supervisor's side, the gateway's end of the channel)"""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    ours.settimeout(0.0)
    with theirs:
        child = GatewayChild("gateway", lambda _: [], RestartPolicy(lambda: 0.5), control=ours)
        yield child, theirs
        child.hang_up()


def test_the_last_report_counts(pair):
    child, gateway = pair
    for ready in (1, 2):
        gateway.send(encode_report(Report(ready_workers=ready)))
    child.take_reports(NOW)
    assert child.report == Report(ready_workers=2)


@pytest.mark.parametrize("words", [b"{", b"[]", b"{}", b'{"figures": {}, "new": 1}', b'{"figures": {"new": 1}}'])
def test_words_of_another_version_do_not_end_the_server(pair, words):
    child, gateway = pair
    gateway.send(encode_report(Report(ready_workers=1)))
    gateway.send(words)
    child.take_reports(NOW)
    assert not child.is_understood
    assert child.report == Report(ready_workers=1)


def test_who_has_ended_is_listened_to_no_more(pair):
    child, gateway = pair
    gateway.close()
    child.take_reports(NOW)
    assert child.control is None


def test_one_that_served_is_back_at_once_unless_it_dies_at_once_again(pair, monkeypatch):
    child, _ = pair
    clock = FakeClock(NOW)
    clock.install(monkeypatch, children)
    clock.install(monkeypatch, gateway_child)

    def wait_s(uptime_s, *, has_reported):
        child.policy.quick_deaths = 3
        child.started, child.has_reported = clock.now - uptime_s, has_reported
        child.schedule_restart(has_been_ready=True)
        return round(child.restart_at - clock.now, 3)

    assert [wait_s(up_s, has_reported=True) for up_s in (0.0, 0.1, 0.3, 9.0)] == [0.3, 0.2, 0.0, 0.0]
    assert wait_s(9.0, has_reported=False) == 0.3


def test_what_a_dead_gateway_had_begun_is_told_to_whoever_comes_after_it(pair):
    child, gateway = pair
    gateway.send(encode_report(Report(in_flight_requests=3)))
    child.take_reports(NOW)
    child.process = SimpleNamespace(poll=lambda: -9)
    assert child.reap() == -9
    child.control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    child.control.settimeout(0.0)
    with theirs:
        child.take_reports(NOW)
        assert child.broken_requests == 3, "it has not said a word yet, and may never"
        for _ in range(2):
            theirs.send(encode_report(Report()))
            child.take_reports(NOW)
        theirs.settimeout(0.0)
        assert decode_order(theirs.recv(1 << 10)) == CountBroken(3)
        with pytest.raises(BlockingIOError):
            theirs.recv(1 << 10)
