"""A gateway that says nothing is killed; one whose supervisor was away itself is not."""

import signal
from types import SimpleNamespace

import pytest

from ostraka import gateway_watch as watch_module
from ostraka.gateway_child import GatewayChild
from ostraka.gateway_watch import ASK_S, FIRST_REPORT_S, POLL_S, GatewayWatch
from ostraka.restarts import RestartPolicy
from ostraka.stillness import SILENT_S, STEP_S, Stillness
from ostraka_shared.core_times import CoreTimes


class Gateway(GatewayChild):
    """Started at 1000; speaks whenever it is listened to, until it is `hung`."""

    def __init__(self, name, *, is_hung=False):
        super().__init__(name, lambda _: [], RestartPolicy(lambda: 0.5))
        self.stillness, self.is_hung, self.told = Stillness(1000.0), is_hung, []
        self.start()

    def start(self):
        self.control = SimpleNamespace()
        self.process = SimpleNamespace(pid=1, send_signal=self.told.append)

    def take_reports(self, now):
        if not self.is_hung:
            self.stillness.heard(now)
            self.has_reported = True


class World:
    def __init__(self, monkeypatch):
        monkeypatch.setattr(watch_module, "read_core_times", lambda _: self.times)
        self.times = CoreTimes(0.0, 0.0, wants_core=False)
        self.now = 1000.0
        self.watch = GatewayWatch()
        self.gateways = [Gateway("gateway"), Gateway("gateway1")]
        self.pass_time(POLL_S)

    def pass_time(self, seconds, step_s=POLL_S):
        ends = self.now + seconds
        while self.now < ends:
            self.now += step_s
            self.watch.turn(self.gateways, self.now)


@pytest.fixture
def world(monkeypatch):
    return World(monkeypatch)


def test_one_that_is_silent_is_looked_at_closely_and_killed(world):
    hung, moving = world.gateways
    hung.is_hung = True
    world.pass_time(ASK_S + 2 * POLL_S)
    assert (hung.told, world.watch.is_close) == ([], True)
    world.pass_time(SILENT_S - ASK_S)
    assert (hung.told, moving.told) == ([signal.SIGKILL], [])


def test_one_that_speaks_again_keeps_its_place(world):
    hung = world.gateways[0]
    hung.is_hung = True
    world.pass_time(SILENT_S - POLL_S)
    hung.is_hung = False
    world.pass_time(SILENT_S)
    assert (hung.told, world.watch.is_close) == ([], False)


def test_one_that_is_in_want_of_a_core_is_let_be(world):
    world.gateways[0].is_hung, world.times = True, CoreTimes(0.0, 0.0, wants_core=True)
    world.pass_time(2 * SILENT_S)
    assert world.gateways[0].told == []


def test_one_that_has_just_been_started_may_take_its_time_but_not_for_ever(world):
    world.gateways.append(Gateway("gateway2", is_hung=True))
    world.pass_time(FIRST_REPORT_S - 1.0)
    assert world.gateways[-1].told == []
    world.pass_time(2.0)
    assert world.gateways[-1].told == [signal.SIGKILL]


def test_who_was_stopped_together_with_its_supervisor_was_not_silent(world):
    for gateway in world.gateways:
        gateway.is_hung = True
    world.pass_time(60.0, step_s=60.0)
    world.pass_time(SILENT_S - STEP_S - POLL_S)
    assert [gateway.told for gateway in world.gateways] == [[], []]
    world.pass_time(3 * POLL_S)
    assert world.gateways[0].told == [signal.SIGKILL]


@pytest.mark.parametrize("ended", ["process", "control"])
def test_one_that_has_ended_or_is_about_to_is_not_killed(world, ended):
    gateway = world.gateways[0]
    gateway.is_hung = True
    setattr(gateway, ended, None)
    world.pass_time(2 * SILENT_S)
    assert gateway.told == []
