"""The gateway's end of the channel to its supervisor: what it says though nothing happens, and what it does when told."""

import socket
from types import SimpleNamespace
from unittest.mock import AsyncMock

import pytest
from structlog.testing import capture_logs

from ostraka_gateway.control import ALIVE_S, REPORT_S, Control
from ostraka_gateway.orders import (
    MESSAGE_BYTES,
    Announce,
    CountBroken,
    Leave,
    Rebind,
    Report,
    decode_report,
    encode_order,
)
from tests.clocks import FakeTimeLoop


class World:
    def __init__(self, theirs):
        self.loop = FakeTimeLoop()
        self.did = []
        roster = SimpleNamespace(ready_workers=lambda: [1, 2])
        cluster = SimpleNamespace(roster=roster, single_flight=SimpleNamespace(in_flight_requests=0))
        self.gateway = SimpleNamespace(successor=None, is_draining=False, cluster=cluster)
        self.server = SimpleNamespace(is_accepting=True, announce=lambda: self.did.append("announced"))
        self.control = self.loop.run_until_complete(self.make(theirs))
        self.control.start()

    async def make(self, theirs):
        return Control(theirs, self.gateway, self.server, lambda: self.did.append("left"))

    def close(self):
        self.control.stop()
        self.loop.close()


@pytest.fixture
def channel():
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    ours.settimeout(0.0)
    with ours:
        world = World(theirs)
        yield world, ours
        world.close()


def reports(ours):
    found = []
    try:
        while message := ours.recv(MESSAGE_BYTES):
            found.append(decode_report(message))
    except BlockingIOError:
        return found


def test_it_says_several_times_a_second_that_it_moves(channel):
    world, ours = channel
    assert reports(ours) == [Report(2, is_accepting=True)]
    world.loop.advance(ALIVE_S / 2)
    assert reports(ours) == []
    world.loop.advance(ALIVE_S / 2 + REPORT_S)
    assert reports(ours) == [Report(2, is_accepting=True)]
    world.server.is_accepting = False
    world.loop.advance(REPORT_S)
    assert reports(ours) == [Report(2, is_accepting=False)]


def test_announcing_is_not_leaving(channel):
    world, ours = channel
    ours.send(encode_order(Announce()))
    world.loop.settle()
    assert (world.did, world.gateway.is_draining) == (["announced"], True)
    ours.send(encode_order(Leave()))
    world.loop.settle()
    assert world.did == ["announced", "left"]


def test_what_its_predecessor_had_begun_is_counted(channel):
    world, ours = channel
    broken = []
    world.gateway.cluster.metrics = SimpleNamespace(broken=SimpleNamespace(inc=broken.append))
    ours.send(encode_order(CountBroken(3)))
    world.loop.settle()
    assert broken == [3]


def test_what_keeps_it_from_binding_again_is_said_once_though_it_is_tried_each_second(channel):
    world, ours = channel

    def full():
        raise OSError("full")

    def order():
        ours.send(encode_order(Rebind()))
        with capture_logs() as events:
            world.loop.settle()
        return [event["event"] for event in events]

    world.gateway.cluster.bind_again = full
    assert [order(), order()] == [["cannot_bind_again"], []]
    world.gateway.cluster.bind_again = lambda: None
    world.gateway.siblings = SimpleNamespace(rebind=AsyncMock())
    world.gateway.cluster.metrics = SimpleNamespace(count_again=lambda: None)
    assert order() == ["bound_again"]
    world.gateway.cluster.bind_again = full
    assert order() == ["cannot_bind_again"]
