"""How the supervisor takes its children down: announced, in order, in time; and what it keeps up meanwhile."""

import signal

import pytest

from ostraka.signals import IGNORED
from ostraka.stopping import WORKERS_LEAVE_S
from tests.unit.deploy.supervised import GRACE_S, World, kill, quiet


def test_drain_is_the_gateway_first_and_then_the_workers(world):
    assert world.run(quiet) == 0
    assert world.journal == ["gateway SIGTERM", "w0 SIGTERM", "w1 SIGTERM"]
    assert world.events[-1] == "stopped"


def test_workers_serve_until_the_last_gateway_is_gone(pair):
    """Nobody is connected to any more, but what was accepted is answered."""
    pair.gateways[1].obeys = False
    seen = []

    def look():
        seen.append((list(pair.journal), pair.is_shut))

    def end():
        look()
        return kill(pair.gateways[1], 0)()

    assert pair.run(look, signal.SIGTERM, quiet, end) == 0
    assert seen == [([], False), (["gateway SIGTERM", "gateway1 SIGTERM"], True)]
    assert pair.journal == ["gateway SIGTERM", "gateway1 SIGTERM", "w0 SIGTERM", "w1 SIGTERM"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_each_stop_signal_drains(world, number):
    assert world.run(quiet, number) == 0
    assert world.journal[0] == "gateway SIGTERM"


def test_workers_serve_until_the_gateway_is_gone(world):
    world.gateway.obeys = False
    finish = kill(world.gateway, 0)
    assert world.run(quiet, signal.SIGTERM, quiet, quiet, finish) == 0
    assert world.journal == ["gateway SIGTERM", "w0 SIGTERM", "w1 SIGTERM"]


def test_a_worker_that_dies_in_a_drain_is_replaced_while_the_gateway_waits_for_its_answers(world):
    world.gateway.obeys = False
    finish = kill(world.gateway, 0)
    assert world.run(quiet, signal.SIGTERM, kill(world.workers[0]), quiet, quiet, finish) == 0
    assert len(world.workers[0].starts) == 2
    assert world.journal == ["gateway SIGTERM", "w0 SIGTERM", "w1 SIGTERM"]


def test_a_restart_that_was_due_when_the_drain_began_is_made_and_does_not_spin(world):
    """The workers need the cores for what they still answer."""
    world.gateway.obeys = False
    finish = kill(world.gateway, 0)
    world.workers[0].policy.quick_deaths = 1
    assert world.run(quiet, kill(world.workers[0]), signal.SIGTERM, quiet, quiet, quiet, finish) == 0
    assert len(world.workers[0].starts) == 2
    assert world.waits[4:6] == [1.0] * 2


def test_nobody_is_replaced_once_the_gateway_is_gone(world):
    world.workers[1].obeys = False
    finish = kill(world.workers[1], 0)
    assert world.run(quiet, signal.SIGTERM, quiet, quiet, finish) == 0
    assert [len(child.starts) for child in (world.gateway, *world.workers)] == [1, 1, 1]


def test_a_worker_still_to_be_replaced_is_not_once_the_gateway_is_gone(world):
    world.gateway.obeys = False

    def both():
        world.workers[0].die()
        world.gateway.die(0)
        return signal.SIGCHLD

    assert world.run(quiet, signal.SIGTERM, both, quiet, quiet) == 0
    assert len(world.workers[0].starts) == 1


def test_a_second_signal_replaces_nobody(world):
    world.workers[0].policy.quick_deaths = 1
    world.gateway.obeys = False
    assert world.run(quiet, signal.SIGTERM, quiet, kill(world.workers[0]), signal.SIGTERM) == 1
    assert len(world.workers[0].starts) == 1


def test_a_drain_while_the_gateway_is_down_goes_on_to_the_workers(world):
    world.gateway.policy.quick_deaths = 1
    assert world.run(quiet, kill(world.gateway), signal.SIGTERM) == 0
    assert world.journal == ["w0 SIGTERM", "w1 SIGTERM"]


def test_a_second_signal_kills(world):
    world.gateway.obeys = False
    assert world.run(quiet, signal.SIGINT, quiet, signal.SIGINT) == 1
    assert [line for line in world.journal if "KILL" in line] == ["gateway SIGKILL", "w0 SIGKILL", "w1 SIGKILL"]
    assert [line for line in world.journal if "reaped" in line] == ["gateway reaped", "w0 reaped", "w1 reaped"]


def test_a_signal_that_comes_twice_at_once_is_one(world):
    """A supervisor's own may signal a group, and then its leader."""
    world.gateway.obeys = False
    finish = kill(world.gateway, 0)
    assert world.run(quiet, signal.SIGTERM, signal.SIGTERM, signal.SIGINT, quiet, finish) == 0
    assert world.journal == ["gateway SIGTERM", "w0 SIGTERM", "w1 SIGTERM"]


@pytest.fixture
def announcing(monkeypatch):
    return World(monkeypatch, announces=True)


def test_sigterm_is_announced_before_the_door_is_shut(announcing):
    told_at, seen = [], []

    def tell():
        told_at.append(announcing.clock.now)
        return signal.SIGTERM

    def look():
        seen.append((list(announcing.journal), announcing.is_shut))

    assert announcing.run(quiet, tell, *[look] * 6) == 0
    assert announcing.not_ready == told_at
    assert seen[:5] == [([], False)] * 5
    assert seen[5] == (["gateway SIGTERM"], True)
    assert [event for event in announcing.events if event in ("not_ready", "stopping")] == ["not_ready", "stopping"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGHUP])
def test_in_a_terminal_nobody_waits_for_a_load_balancer(announcing, number):
    assert announcing.run(quiet, number) == 0
    assert (announcing.not_ready, announcing.journal[0]) == ([], "gateway SIGTERM")


def test_who_is_not_ready_yet_has_nothing_to_announce(announcing):
    announcing.ready = lambda: None
    assert announcing.run(signal.SIGTERM) == 0
    assert announcing.not_ready == []


def test_what_dies_meanwhile_is_replaced_and_told(announcing):
    steps = [quiet, signal.SIGTERM, kill(announcing.gateway), quiet, kill(announcing.workers[0]), *[quiet] * 6]
    assert announcing.run(*steps) == 0
    assert [len(child.starts) for child in (announcing.gateway, *announcing.workers)] == [2, 2, 1]
    assert announcing.not_ready[1] == announcing.gateway.starts[1]


def test_a_later_signal_ends_the_announcement_and_all_else(announcing):
    assert announcing.run(quiet, signal.SIGTERM, signal.SIGTERM, quiet, signal.SIGTERM) == 1
    assert announcing.events[-2:] == ["stopping_now", "stopped"]
    assert "gateway SIGKILL" in announcing.journal


def test_the_grace_period_ends(world):
    world.gateway.obeys = False
    begun = world.clock.now
    assert world.run(quiet, signal.SIGTERM, *[quiet] * 40) == 1
    assert "grace_period_over" in world.events
    assert [said for said in world.journal if said.startswith("gateway")][-2:] == ["gateway SIGKILL", "gateway reaped"]
    assert GRACE_S <= world.clock.now - begun <= GRACE_S + 2


def test_a_worker_that_stands_still_once_the_gateways_have_left_is_killed_and_nothing_was_left_unanswered(world):
    world.workers[1].obeys = False
    begun = world.clock.now
    assert world.run(quiet, signal.SIGTERM, *[quiet] * 40) == 0
    assert "workers_killed" in world.events
    assert world.journal[-1] == "w1 SIGKILL"
    assert WORKERS_LEAVE_S <= world.clock.now - begun <= WORKERS_LEAVE_S + 2


def test_a_signal_while_starting_drains(world):
    world.ready = lambda: None
    assert world.run(signal.SIGTERM) == 0
    assert world.journal == ["gateway SIGTERM", "w0 SIGTERM", "w1 SIGTERM"]


def test_a_gateway_that_had_not_begun_to_serve_left_nothing_unanswered(world):
    """It has no handler yet: the signal itself ends it."""
    world.ready = lambda: None
    world.gateway.obeys = False
    assert world.run(signal.SIGTERM, kill(world.gateway, -signal.SIGTERM)) == 0


@pytest.mark.parametrize("number", IGNORED)
def test_a_signal_that_means_nothing_is_said_and_ends_nothing(world, number):
    assert world.run(quiet, number, quiet) == 0
    assert "signal_ignored" in world.events
    assert [len(child.starts) for child in (world.gateway, *world.workers)] == [1, 1, 1]
