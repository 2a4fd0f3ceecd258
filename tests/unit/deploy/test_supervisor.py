"""The supervisor keeps its children up, as long as they can be."""

import pytest

from ostraka import supervisor as supervisor_module
from ostraka.restarts import CRASH_LIMIT_AT_START
from tests.unit.deploy.supervised import FakeChild, kill, quiet


def test_it_starts_all_and_listens_once_all_are_ready(world):
    counts = [None, 0, 0, 1, 2]
    world.ready = lambda: counts.pop(0)
    assert world.run(*[quiet] * 5) == 0
    assert world.events[:4] == ["workers_loading", "workers_loading", "workers_ready", "listening"]
    assert [len(child.starts) for child in (world.gateway, *world.workers)] == [1, 1, 1]


def test_a_gateway_that_dies_or_drains_is_replaced_and_its_sibling_is_left_alone(pair):
    assert pair.run(quiet, kill(pair.gateways[1]), quiet, kill(pair.gateways[1], 0), *[quiet] * 3) == 0
    assert [len(gateway.starts) for gateway in pair.gateways] == [1, 3]
    assert pair.journal[:2] == ["gateway SIGTERM", "gateway1 SIGTERM"]


def test_one_gateway_given_up_leaves_the_others(pair):
    pair.gateways[1].dies_at_start = True
    counts = iter([0] * 4 + [2] * 50)
    pair.ready = lambda: next(counts)
    assert pair.run(*[quiet] * 10) == 0
    assert pair.gateways[1].is_given_up
    assert "listening" in pair.events


def test_no_gateway_that_can_be_kept_up_ends_it_all(pair):
    for gateway in pair.gateways:
        gateway.dies_at_start = True
    pair.ready = lambda: None
    assert pair.run(*[quiet] * 20) == 1
    assert "cannot_keep_up" in pair.events


@pytest.mark.parametrize("who", ["gateway", "w0"])
def test_what_dies_is_started_again_after_a_moment(world, who):
    child = {"gateway": world.gateway, "w0": world.workers[0]}[who]
    assert world.run(quiet, kill(child), quiet, quiet) == 0
    assert len(child.starts) == 2
    assert child.starts[1] - child.starts[0] >= 0.1
    assert [len(c.starts) for c in (world.gateway, *world.workers) if c is not child] == [1, 1]


def test_a_first_death_is_made_good_at_once(world):
    world.run(quiet, kill(world.workers[0]), quiet)
    assert world.workers[0].starts == [1000.0, 1000.0 + supervisor_module.SERVING_POLL_S]


def test_a_death_is_seen_at_once_and_the_restart_is_not_overslept(world):
    world.workers[0].policy.quick_deaths = 1
    world.run(quiet, kill(world.workers[0]), quiet)
    assert world.waits[2] == pytest.approx(0.1)


def test_a_child_that_dies_at_start_ends_it_all(world):
    world.workers[0].dies_at_start = True
    for worker in world.workers[1:]:
        worker.dies_at_start = True
    world.ready = lambda: 0
    assert world.run(*[quiet] * 20) == 1
    assert "cannot_keep_up" in world.events
    assert len(world.workers[0].starts) == CRASH_LIMIT_AT_START
    assert world.journal == ["gateway SIGTERM"]


def test_a_gateway_that_dies_at_start_ends_it_all(world):
    world.gateway.dies_at_start = True
    world.ready = lambda: None
    assert world.run(*[quiet] * 20) == 1
    assert world.journal == ["w0 SIGTERM", "w1 SIGTERM"]


def test_one_worker_given_up_leaves_a_smaller_cluster_that_listens(world):
    """The other is ready long before: that no number changes any more must not keep it from serving."""
    world.workers[1].dies_at_start = True
    world.ready = lambda: 1
    assert world.run(*[quiet] * 20) == 0
    assert len(world.workers[1].starts) == CRASH_LIMIT_AT_START
    assert "listening" in world.events


def test_a_process_that_cannot_be_started_is_tried_again(world):
    world.workers[0].fails_to_start = 1
    assert world.run(*[quiet] * 5) == 0
    assert len(world.workers[0].starts) == 2
    assert "listening" in world.events


@pytest.fixture
def zygote(world, monkeypatch):
    """No orphans are looked for: this process has children of other tests."""
    monkeypatch.setattr(supervisor_module, "reap_strays", lambda _: None)
    found = FakeChild("zygote 0", world)
    world.succession.serving.zygotes.append(found)
    return found


def test_a_zygote_is_started_before_its_forks_and_leaves_with_the_workers(world, zygote):
    assert world.run(quiet) == 0
    assert [child.name for child in world.succession.children] == ["zygote 0", "gateway", "w0", "w1"]
    assert world.journal == ["gateway SIGTERM", "zygote 0 SIGKILL", "w0 SIGTERM", "w1 SIGTERM"]


def test_a_zygote_that_dies_is_replaced_and_costs_no_worker(world, zygote):
    assert world.run(quiet, kill(zygote), quiet) == 0
    assert [len(child.starts) for child in world.succession.children] == [2, 1, 1, 1]


def test_a_zygote_that_cannot_be_kept_up_is_done_without(world, zygote):
    zygote.dies_at_start = True
    world.ready = lambda: 2 if zygote.is_given_up else 1
    assert world.run(*[quiet] * 20) == 0
    assert len(zygote.starts) == CRASH_LIMIT_AT_START
    assert "listening" in world.events


def test_a_fault_of_its_own_leaves_no_child(world):
    def fault():
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        world.run(quiet, fault)
    assert [line for line in world.journal if "reaped" in line] == ["gateway reaped", "w0 reaped", "w1 reaped"]
