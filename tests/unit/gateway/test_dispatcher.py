"""What is sent, in which order, and what becomes of the answers."""

import sys
from types import SimpleNamespace

import pytest

from ostraka_gateway.parts import Request
from ostraka_gateway.single_flight import Reply
from ostraka_gateway.waiting_line import PATIENCE_S
from ostraka_shared import errors
from ostraka_shared.messages import Failed, Result, Work
from tests.unit.gateway.world import is_empty, late, question, withdrawn_from


def test_a_request_is_sent_whole_with_the_time_that_is_left(world):
    world.join("w0")
    world.ask("a", count=3, prompts=2, deadline_s=2.5)
    assert world.sent == [("w0", Work("a", 1, 2500, *question("a", 3, 2)))]


def test_its_answer_is_the_reply(world):
    worker = world.join("w0")
    task = world.ask("a", prompts=2)
    world.loop.advance(0.25)
    world.answer(worker, "a", p_yes=(0.25, 0.75), inference_ms=200.0)
    assert task.result() == Reply((0.25, 0.75), pytest.approx(50.0), 200.0)
    assert worker.held == {}
    assert is_empty(world)


def test_queue_time_is_never_negative(world):
    worker = world.join("w0")
    task = world.ask("a")
    world.answer(worker, "a", inference_ms=5000.0)
    assert task.result().queue_ms == 0.0


def test_what_has_no_room_waits_in_order_and_is_sent_when_there_is(world):
    worker = world.join("w0")
    for name, count in (("a", 40), ("b", 40), ("c", 40), ("d", 20), ("e", 40)):
        world.ask(name, count)
    assert world.sent_to(worker) == [("a", 1), ("b", 1)]  # d would fit, but c is before it
    assert (world.dispatcher.line.count, world.dispatcher.line.tokens) == (3, 100)
    world.answer(worker, "a")
    world.call(world.dispatcher.pump)
    assert world.sent_to(worker)[2:] == [("c", 1), ("d", 1)]
    assert worker.outstanding_tokens == 100


def test_time_spent_waiting_is_not_given_to_the_worker(world):
    worker = world.join("w0")
    world.ask("a", 100)
    world.ask("b", 100, deadline_s=5.0)
    world.loop.advance(2.0)
    world.answer(worker, "a")
    world.call(world.dispatcher.pump)
    assert world.sent[-1][1].deadline_ms == 3000


def test_what_expires_in_the_very_turn_that_room_comes_is_not_sent(world):
    worker = world.join("w0")
    world.ask("a", 100)
    world.ask("b", 100)
    world.ask("c", 100)

    def leave_and_pump():
        world.tasks["b"].cancel()
        worker.release("a")
        world.dispatcher.pump()

    world.call(leave_and_pump)
    assert world.sent_to(worker) == [("a", 1), ("c", 1)]
    assert world.dispatcher.line.tokens == 0


def test_any_number_may_leave_in_the_same_turn(world):
    """As all do whose deadlines passed while the whole process was stopped: more than any stack is deep."""
    worker, now = world.join("w0"), world.loop.time()
    gone = SimpleNamespace(done=lambda: True)
    for number in range(sys.getrecursionlimit()):
        request = Request(str(number), b"", (b"",), 0, (0,), now, now, now, lambda _: None, waiters={"gone": gone})
        world.dispatcher.add(request)
    world.ask("last")
    assert world.sent_to(worker) == [("last", 1)]


@pytest.mark.parametrize("by", ["deadline", "client"])
def test_who_waited_behind_one_that_left_is_sent(world, by):
    worker = world.join("w0")
    for name, count in (("first", 50), ("a", 20)):
        world.ask(name, count)
    world.ask("b", 40, deadline_s=1.0)
    world.ask("c", 30)
    if by == "client":
        world.tasks["b"].cancel()
    world.loop.advance(1.0 if by == "deadline" else 0.0)
    assert world.sent_to(worker) == [("first", 1), ("a", 1), ("c", 1)]


@pytest.mark.parametrize(
    ("code", "error"),
    [
        ("engine_failed", errors.EngineFailed),
        ("deadline_exceeded", errors.DeadlineExceeded),
        ("anything", errors.EngineFailed),
    ],
)
def test_a_failure_is_an_error(world, code, error):
    worker = world.join("w0")
    task = world.ask("a")
    world.fail(worker, "a", code)
    assert type(task.exception()) is error
    assert worker.held == {}
    assert is_empty(world)


@pytest.mark.parametrize("p_yes", [(), (0.5, 0.5)])
def test_never_a_partial_answer(world, p_yes):
    worker = world.join("w0")
    task = world.ask("a")
    world.answer(worker, "a", p_yes=p_yes)
    assert isinstance(task.exception(), errors.EngineFailed)


@pytest.mark.parametrize("say", ["answer", "fail"])
def test_only_the_worker_that_holds_a_request_answers_it(world, say):
    holder, other = world.join("w0"), world.join("w1")
    task = world.ask("a")
    assert world.sent_to(holder) == [("a", 1)]
    getattr(world, say)(other, "a")
    assert not task.done()
    assert holder.held == {"a": 10}
    assert late(world) == 1
    world.answer(holder, "a", p_yes=(0.75,))
    assert task.result().p_yes == (0.75,)


def test_the_first_answer_wins(world):
    worker = world.join("w0")
    task = world.ask("a")

    def both():
        world.dispatcher.answered(worker, Result("a", 1, (0.25,), 0.0, 0.0))
        world.dispatcher.answered(worker, Result("a", 1, (0.75,), 0.0, 0.0))
        world.dispatcher.failed(worker, Failed("a", 1, "engine_failed", "late"))

    world.call(both)
    assert task.result().p_yes == (0.25,)
    assert late(world) == 2


def test_a_long_request_waits_for_no_longer_one(world):
    worker = world.join("w0")
    for name, tokens in (("book", 850), ("second book", 820), ("page", 170), ("a", 30), ("second page", 160)):
        world.ask(name, tokens)
    assert world.sent_to(worker) == [("book", 1), ("page", 1), ("a", 1)]
    world.answer(worker, "page")
    world.call(world.dispatcher.pump)
    assert world.sent_to(worker)[3:] == [("second page", 1)]
    world.answer(worker, "book")
    world.call(world.dispatcher.pump)
    assert world.sent_to(worker)[4:] == [("second book", 1)]


def test_short_requests_fit_beside_a_long_one_and_a_second_of_its_size_waits(world):
    worker = world.join("w0")
    world.ask("long", 300)
    world.ask("longer", 500)
    world.ask("a", 30)
    world.ask("b", 20)
    world.ask("c", 20)
    assert world.sent_to(worker) == [("long", 1), ("a", 1), ("b", 1)]
    world.answer(worker, "long")
    world.call(world.dispatcher.pump)
    assert world.sent_to(worker)[3:] == [("longer", 1)], "c came later, and waits for room"
    world.answer(worker, "a")
    world.call(world.dispatcher.pump)
    assert world.sent_to(worker)[4:] == [("c", 1)]


def test_the_earliest_deadline_goes_first(world):
    worker = world.join("w0")
    world.ask("a", 100)
    for name, deadline_s in (("late", 9.0), ("later", 60.0), ("soon", 2.0)):
        world.ask(name, 100, deadline_s=deadline_s)
    for name in ("a", "soon", "late"):
        world.answer(worker, name)
        world.call(world.dispatcher.pump)
    assert [name for name, _ in world.sent_to(worker)] == ["a", "soon", "late", "later"]


def test_a_deadline_far_away_is_no_reason_to_wait_for_ever(world):
    worker = world.join("w0")
    world.ask("a", 100, deadline_s=30)
    world.ask("patient", 100, deadline_s=500.0)
    world.loop.advance(PATIENCE_S - 8.0)
    world.ask("urgent", 100, deadline_s=9.0)
    world.answer(worker, "a")
    world.call(world.dispatcher.pump)
    assert world.sent_to(worker)[1:] == [("patient", 1)]


def test_what_nobody_waits_for_is_withdrawn(world):
    worker = world.join("w0", credit=20)
    world.ask("a", 20)
    world.call(world.single_flight.abandon, "a")
    assert withdrawn_from(world, worker) == [("a", 1)]
    world.ask("b", 20, deadline_s=1.0)
    world.fail(worker, "a", "cancelled")
    world.call(world.dispatcher.pump)
    world.loop.advance(1.0)
    assert withdrawn_from(world, worker) == [("a", 1), ("b", 1)]
