"""What a worker held that was lost, or is suspect, is sent to others; the first answer wins."""

import pytest
from structlog.testing import capture_logs

from ostraka_gateway.worker import WorkerState
from ostraka_shared import errors
from tests.unit.gateway.world import late, suspect, withdrawn_from


def test_what_a_lost_worker_held_goes_first_in_its_old_order(world):
    lost = world.join("w0")
    for name in "abcde":
        world.ask(name, 40)
    assert world.sent_to(lost) == [("a", 1), ("b", 1)]
    world.call(world.lose, lost, "replaced")
    assert world.dispatcher.line.tokens == 200
    heir = world.join("w1", credit=200)
    assert world.sent_to(heir) == [("a", 2), ("b", 2), ("c", 1), ("d", 1), ("e", 1)]
    assert world.metrics.redispatched.labels("replaced")._value.get() == 2


def test_the_result_of_an_earlier_attempt_is_not_taken(world):
    first = world.join("w0")
    task = world.ask("a")
    world.call(world.lose, first)
    second = world.join("w1")
    world.answer(first, "a", attempt=1)
    assert not task.done()
    world.answer(second, "a", attempt=2)
    assert task.done()


@pytest.mark.parametrize("say", ["answer", "fail"])
def test_a_worker_that_joins_again_may_still_answer_what_it_was_sent_before(world, say):
    """It holds the second attempt: were that forgotten here, the request would be missed by nobody when it dies."""
    worker = world.join("w0")
    task = world.ask("a")
    world.call(world.lose, worker, "replaced")
    again = world.join("w0")
    assert world.sent_to(again) == [("a", 1), ("a", 2)]
    getattr(world, say)(again, "a", attempt=1)
    assert not task.done()
    assert again.held == {"a": 10}
    world.call(world.lose, again, "unreachable")
    heir = world.join("w1")
    assert world.sent_to(heir) == [("a", 3)]
    world.answer(heir, "a", attempt=3)
    assert task.result()


def test_a_worker_that_cannot_be_reached_is_lost_and_nothing_else_is(world):
    first, second = world.join("w0"), world.join("w1")
    world.ask("a", 30)
    world.ask("b", 30)
    assert (world.sent_to(first), world.sent_to(second)) == ([("a", 1)], [("b", 1)])
    world.unreachable.add(b"w0")
    world.ask("c", 30)
    assert list(world.roster) == [second]
    assert {name for name, _ in world.sent_to(second)} == {"b", "a", "c"}
    assert world.dispatcher.line.tokens == 0


def test_all_unreachable(world):
    for name in ("w0", "w1", "w2"):
        world.join(name)
        world.unreachable.add(name.encode())
    task = world.ask("a")
    assert not task.done()
    assert len(world.roster) == 0
    assert world.dispatcher.line.tokens == 10
    heir = world.join("w3")
    world.answer(heir, "a", attempt=world.sent_to(heir)[0][1])
    assert task.result()


def test_what_a_suspect_holds_is_given_to_others_at_once_and_the_first_answer_wins(world):
    first, other = world.join("w0"), world.join("w1")
    task = world.ask("a")
    world.started(first, "a")
    suspect(world, first)
    assert world.sent_to(other) == [("a", 2)]
    world.answer(other, "a", attempt=2, p_yes=(0.25,))
    assert task.result().p_yes == (0.25,)
    assert withdrawn_from(world, first) == [("a", 1)]
    assert first.held == {"a": 10}
    world.answer(first, "a", p_yes=(0.25,))
    assert (first.held, list(world.parts), late(world)) == ({}, [], 1)
    assert world.metrics.duplicates.labels("same")._value.get() == 1


def test_two_different_answers_are_told(world):
    first, other = world.join("w0"), world.join("w1")
    task = world.ask("a")
    suspect(world, first)
    world.answer(first, "a", p_yes=(0.25,))
    assert task.result().p_yes == (0.25,)
    assert withdrawn_from(world, other) == [("a", 2)]
    with capture_logs() as lines:
        world.answer(other, "a", attempt=2, p_yes=(0.2500001,))
    assert [line["event"] for line in lines] == ["answers_differ"]
    assert world.metrics.duplicates.labels("different")._value.get() == 1


def test_a_suspect_that_speaks_again_needs_no_copies(world):
    first = world.join("w0")
    world.ask("a", 60)
    suspect(world, first)
    assert world.dispatcher.line.count == 1
    first.state = WorkerState.READY
    world.call(world.dispatcher.trusted, first)
    assert world.dispatcher.line.count == 0
    world.answer(first, "a")
    assert world.tasks["a"].result()


@pytest.fixture
def late_twice(world):
    """Two workers that hold the same, one of them once suspect; and someone who came to wait for it for longer."""
    first, other = world.join("w0"), world.join("w1")
    world.ask("a", deadline_s=3.0)
    suspect(world, first)
    assert world.sent_to(other) == [("a", 2)]
    world.ask("b", deadline_s=60.0, as_name="a")
    return first, other


def come_back_late(world, worker, attempt):
    world.fail(worker, "a", "deadline_exceeded", attempt)
    world.call(world.dispatcher.pump)


def test_a_copy_that_comes_back_undone_is_not_sent_again_while_another_is_relied_on(world, late_twice):
    first, other = late_twice
    first.state = WorkerState.READY
    world.call(world.dispatcher.trusted, first)
    come_back_late(world, other, attempt=2)
    assert (world.sent_to(first), world.sent_to(other)) == ([("a", 1)], [("a", 2)])
    come_back_late(world, first, attempt=1)
    again = {worker: world.sent_to(worker)[1:] for worker in late_twice}
    assert sorted(again.values()) == [[], [("a", 3)]], "nobody had it any more"


def test_a_copy_that_comes_back_undone_is_sent_again_where_only_a_suspect_has_another(world, late_twice):
    _, other = late_twice
    come_back_late(world, other, attempt=2)
    assert world.sent_to(other) == [("a", 2), ("a", 3)]


def test_that_the_first_copy_was_late_says_nothing_of_one_that_was_sent_with_more_time(world):
    first, other = world.join("w0"), world.join("w1")
    world.ask("a", deadline_s=3.0)
    task = world.ask("b", deadline_s=60.0, as_name="a")
    suspect(world, first)
    assert world.sent_to(other) == [("a", 2)]
    come_back_late(world, first, attempt=1)
    assert not task.done()
    world.answer(other, "a", attempt=2)
    assert task.result()


def test_no_third_worker_is_risked_for_what_stands_still_in_two(world):
    workers = [world.join(f"w{number}") for number in range(3)]
    task = world.ask("a")
    suspect(world, workers[0])
    assert world.sent_to(workers[1]) == [("a", 2)]
    suspect(world, workers[1])
    assert world.sent_to(workers[2]) == []
    for worker in workers[:2]:
        world.started(worker, "a")
        world.call(world.lose, worker, "silent")
    assert isinstance(task.exception(), errors.PoisonedRequest)
