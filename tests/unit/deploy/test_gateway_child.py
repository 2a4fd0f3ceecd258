"""What a gateway reports to its supervisor, also one that speaks otherwise."""

import socket

import pytest

from ostraka.gateway_child import GatewayChild
from ostraka.restarts import RestartPolicy
from ostraka_gateway.orders import Report, encode_report

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
