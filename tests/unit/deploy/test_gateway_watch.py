"""A gateway that says nothing is killed, and a spare takes its place; one whose supervisor was away itself is not."""

import signal
from types import SimpleNamespace

import pytest
from ostraka.spares import has_parted

from ostraka import gateway_watch as watch_module
from ostraka.gateway_child import GatewayChild
from ostraka.gateway_watch import FIRST_REPORT_S, POLL_S, GatewayWatch
from ostraka.generation import Generation
from ostraka.restarts import RestartPolicy
from ostraka.stillness import CALM_S, DOUBT_S, SILENT_S, STEP_S, CoreTimes, Stillness
from ostraka_gateway.orders import Serve


class Gateway(GatewayChild):
    """Started at 1000; speaks whenever it is listened to, until it is `hung`."""

    def __init__(self, name, *, is_hung=False):
        super().__init__(name, lambda _: [], RestartPolicy(lambda: 0.5))
        self.stillness, self.is_hung, self.told, self.orders = Stillness(1000.0), is_hung, [], []
        self.start()

    def start(self):
        self.control = SimpleNamespace()
        self.process = SimpleNamespace(pid=1, send_signal=self.told.append)

    def take_reports(self, now):
        if not self.is_hung:
            self.stillness.heard(now)
            self.has_reported = True

    def order(self, order):
        self.orders.append(order)
        return True


class World:
    def __init__(self, monkeypatch):
        monkeypatch.setattr(watch_module, "read_core_times", lambda _: self.times)
        self.times = CoreTimes(0.0, 0.0, wants_core=False)
        self.now = 1000.0
        self.watch = GatewayWatch()
        self.gateways = [Gateway("gateway"), Gateway("gateway1")]
        self.serving = Generation(1, list(self.gateways), [], make_spare=self.make_spare)
        self.may_replace = True
        self.pass_time(POLL_S)

    def make_spare(self, number):
        return Gateway(self.gateways[number].name, is_hung=True)  # it says nothing while it waits

    @property
    def spare(self):
        return self.serving.spares.get("gateway")

    def pass_time(self, seconds, step_s=POLL_S):
        """Whether a spare took a place meanwhile."""
        ends, has_replaced = self.now + seconds, False
        while self.now < ends:
            self.now += step_s
            has_replaced |= self.watch.turn(self.serving, self.gateways, self.now, may_replace=self.may_replace)
        return has_replaced


@pytest.fixture
def world(monkeypatch):
    return World(monkeypatch)


def test_one_that_is_silent_has_a_spare_started_which_serves_when_it_is_killed(world):
    hung, moving = world.gateways
    hung.is_hung = True
    world.pass_time(DOUBT_S + 2 * POLL_S)
    spare = world.spare
    assert (hung.told, spare.orders, world.watch.is_close) == ([], [], True)
    assert world.pass_time(SILENT_S - DOUBT_S)
    assert (hung.told, moving.told, spare.told) == ([signal.SIGKILL], [], [])
    assert spare.orders == [Serve(0)]
    assert (world.serving.gateways, world.serving.spares) == ([spare, moving], {})
    assert hung in world.serving.children, "until it has been reaped"
    assert has_parted(world.serving, hung, "SIGKILL")
    assert hung not in world.serving.children


def test_one_that_speaks_again_keeps_its_place_and_the_spare_ends_after_a_while(world):
    hung = world.gateways[0]
    hung.is_hung = True
    world.pass_time(DOUBT_S + 2 * POLL_S)
    spare, hung.is_hung = world.spare, False
    world.pass_time(CALM_S - 2 * POLL_S)
    assert world.spare is spare
    world.pass_time(4 * POLL_S)
    assert (world.spare, spare.told, hung.told, spare.orders) == (None, [signal.SIGKILL], [], [])
    assert has_parted(world.serving, spare, "SIGKILL")


def test_a_spare_that_dies_is_not_started_again_and_one_that_is_given_up_is_killed_all_the_same(world):
    hung = world.gateways[0]
    hung.is_hung = True
    world.pass_time(DOUBT_S + 2 * POLL_S)
    spare, spare.process = world.spare, None
    assert has_parted(world.serving, spare, "1")
    assert not world.pass_time(SILENT_S)
    assert (hung.told, world.serving.gateways[0]) == ([signal.SIGKILL], hung)


def test_in_the_want_of_a_core_there_is_no_spare_that_would_want_one_too(world):
    world.gateways[0].is_hung, world.times = True, CoreTimes(0.0, 0.0, wants_core=True)
    world.pass_time(2 * SILENT_S)
    assert (world.spare, world.gateways[0].told) == (None, [])


def test_where_none_may_be_replaced_there_is_no_spare(world):
    world.gateways[0].is_hung, world.may_replace = True, False
    assert not world.pass_time(SILENT_S + 2 * POLL_S)
    assert (world.spare, world.gateways[0].told) == (None, [signal.SIGKILL])


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
