"""A gateway that says nothing is killed; one whose supervisor was away itself is not."""

import signal
from types import SimpleNamespace

import pytest

from ostraka.gateway_child import GatewayChild
from ostraka.gateway_watch import FIRST_REPORT_S, LATE_S, SILENT_S, GatewayWatch
from ostraka.restarts import RestartPolicy

STEP_S = 1.0


class Gateway(GatewayChild):
    """Started at 1000; speaks whenever it is listened to, until it is `hung`."""

    def __init__(self, *, is_hung=False):
        super().__init__("gateway", lambda _: [], RestartPolicy(lambda: 0.5))
        self.heard, self.is_hung, self.told = 1000.0, is_hung, []
        self.control = SimpleNamespace()
        self.process = SimpleNamespace(send_signal=self.told.append)

    def take_reports(self, now):
        if not self.is_hung:
            self.heard, self.has_reported = now, True


class World:
    def __init__(self):
        self.now = 1000.0
        self.watch = GatewayWatch()
        self.gateways = [Gateway(), Gateway()]
        self.pass_time(STEP_S)

    def pass_time(self, seconds, step_s=STEP_S):
        ends = self.now + seconds
        while self.now < ends:
            self.now += step_s
            self.watch.turn(self.gateways, self.now)


@pytest.fixture
def world():
    return World()


def test_one_that_is_silent_for_too_long_is_killed_once_and_its_sibling_left_alone(world):
    hung, moving = world.gateways
    hung.is_hung = True
    world.pass_time(SILENT_S)
    assert hung.told == []
    world.pass_time(STEP_S)
    assert (hung.told, moving.told) == ([signal.SIGKILL], [])
    world.pass_time(STEP_S)
    assert hung.told == [signal.SIGKILL]


def test_one_that_has_just_been_started_may_take_its_time_but_not_for_ever(world):
    world.gateways.append(Gateway(is_hung=True))
    world.pass_time(FIRST_REPORT_S - 2 * STEP_S)
    assert world.gateways[-1].told == []
    world.pass_time(3 * STEP_S)
    assert world.gateways[-1].told == [signal.SIGKILL]


def test_who_was_stopped_together_with_its_supervisor_was_not_silent(world):
    for gateway in world.gateways:
        gateway.is_hung = True
    world.pass_time(60.0, step_s=60.0)
    world.pass_time(SILENT_S - LATE_S)
    assert [gateway.told for gateway in world.gateways] == [[], []]
    world.pass_time(LATE_S + STEP_S)
    assert world.gateways[0].told == [signal.SIGKILL]


@pytest.mark.parametrize("ended", ["process", "control"])
def test_one_that_has_ended_or_is_about_to_is_not_killed(world, ended):
    gateway = world.gateways[0]
    gateway.is_hung = True
    setattr(gateway, ended, None)
    world.pass_time(2 * SILENT_S)
    assert gateway.told == []
