"""Which request is held responsible for a worker's end, and which runs alone, to find out."""

import pytest

from ostraka_gateway.parts import KILLS_A_CRASH
from ostraka_shared import errors
from tests.unit.gateway.world import is_empty


def test_a_request_running_in_two_crashed_workers_is_poison(world):
    first = world.join("w0")
    task = world.ask("a")
    world.started(first, "a")
    world.call(world.lose, first)
    second = world.join("w1")
    assert world.sent_to(second) == [("a", 2)]
    world.started(second, "a")
    world.call(world.lose, second)
    assert isinstance(task.exception(), errors.PoisonedRequest)
    assert "a" in str(task.exception())
    third = world.join("w2")
    assert world.sent_to(third) == []
    assert is_empty(world)


def test_kills_from_outside_are_no_crashes_unless_they_follow_the_request(world):
    """An operator's, say; but a watcher of memory may kill again and again for the same one."""
    task = world.join("w0") and world.ask("a")
    for number in range(1, 2 * KILLS_A_CRASH):
        (worker,) = world.roster
        world.started(worker, "a")
        world.call(world.lose, worker, "killed")
        world.join(f"w{number}")
        assert not task.done()
    (worker,) = world.roster
    world.started(worker, "a")
    world.call(world.lose, worker, "killed")
    assert isinstance(task.exception(), errors.PoisonedRequest)
    assert "4 workers" in str(task.exception())


def test_a_crash_counts_beside_kills(world):
    task = world.join("w0") and world.ask("a")
    for number, reason in enumerate(["killed", "exit", "exit"]):
        assert not task.done()
        (worker,) = world.roster
        world.started(worker, "a")
        world.call(world.lose, worker, reason)
        world.join(f"w{number + 1}")
    assert isinstance(task.exception(), errors.PoisonedRequest)


def test_who_was_killed_from_outside_leaves_work_that_need_not_run_alone(world):
    tasks = [world.ask(name, 20) for name in "ab"] if world.join("w0") else []
    (worker,) = world.roster
    world.started(worker, "a", "b")
    world.call(world.lose, worker, "killed")
    assert world.sent_to(world.join("w1")) == [("a", 2), ("b", 2)]
    assert not any(task.done() for task in tasks)


@pytest.mark.parametrize("reason", ["bye", "replaced", "unreachable"])
def test_what_is_no_crash_is_not_held_against_a_request(world, reason):
    task = world.join("w0") and world.ask("a")
    for number in range(1, 6):
        (worker,) = world.roster
        world.started(worker, "a")
        world.call(world.lose, worker, reason)
        world.join(f"w{number}")
        assert not task.done()
    assert world.sent_to(next(iter(world.roster))) == [("a", 6)]


def test_who_was_seen_not_to_run_is_not_blamed_for_a_crash(world):
    tasks = {name: world.ask(name, 20) for name in "ab"} if world.join("w0") else {}
    for number in range(1, 3):
        (worker,) = world.roster
        world.started(worker, "a")
        world.call(world.lose, worker)
        world.join(f"w{number}")
    assert isinstance(tasks["a"].exception(), errors.PoisonedRequest)
    assert not tasks["b"].done()


def test_one_that_a_worker_held_alone_is_the_one_though_its_started_died_with_it(world):
    task = world.join("w0") and world.ask("a")
    for number in range(1, 3):
        (worker,) = world.roster
        world.call(world.lose, worker)
        world.join(f"w{number}")
    assert isinstance(task.exception(), errors.PoisonedRequest)


def test_in_doubt_each_runs_alone_and_none_is_blamed(world):
    """Two kills from outside, each before STARTED was heard: no request is at fault, and none is refused."""
    tasks = {name: world.ask(name, 20) for name in "ab"} if world.join("w0") else {}
    (worker,) = world.roster
    world.call(world.lose, worker)
    second = world.join("w1")
    assert world.sent_to(second) == [("a", 2)]
    world.started(second, "a")
    world.call(world.lose, second)
    third = world.join("w2")
    assert world.sent_to(third) == [("a", 3)]
    world.answer(third, "a", attempt=3)
    world.call(world.dispatcher.pump)
    world.answer(third, "b", attempt=2)
    assert tasks["a"].result()
    assert tasks["b"].result()


def test_after_a_crash_a_request_runs_alone_so_that_its_mates_live(world):
    """b is the culprit. Were it batched with a and c again, all three would be poison."""
    tasks = {name: world.ask(name, 20) for name in "abc"} if world.join("w0") else {}
    (worker,) = world.roster
    world.started(worker, "a", "b", "c")
    world.call(world.lose, worker)
    second = world.join("w1")
    assert world.sent_to(second) == [("a", 2)]
    world.answer(second, "a", attempt=2)
    world.call(world.dispatcher.pump)
    assert world.sent_to(second)[1:] == [("b", 2)]
    world.started(second, "b")
    world.call(world.lose, second)
    third = world.join("w2")
    assert world.sent_to(third) == [("c", 2)]
    world.answer(third, "c", attempt=2)
    assert tasks["a"].result()
    assert tasks["c"].result()
    assert isinstance(tasks["b"].exception(), errors.PoisonedRequest)


def test_a_request_that_runs_alone_waits_for_an_idle_worker_and_keeps_it(world):
    busy, lost = world.join("w0"), world.join("w1")
    world.ask("a", 10)
    world.ask("b", 10)
    assert world.sent_to(busy) == [("a", 1)]
    world.started(lost, "b")
    world.call(world.lose, lost)
    world.ask("c", 10)
    assert world.sent_to(busy) == [("a", 1)]
    world.answer(busy, "a")
    world.call(world.dispatcher.pump)
    assert world.sent_to(busy) == [("a", 1), ("b", 2)]
    world.answer(busy, "b", attempt=2)
    world.call(world.dispatcher.pump)
    assert world.sent_to(busy) == [("a", 1), ("b", 2), ("c", 1)]
