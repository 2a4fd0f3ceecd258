"""The in-flight table, by hand and at random. Time is the event loop's, and moves only when told to."""

import asyncio
import random
import zlib

import pytest
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from structlog.testing import capture_logs

from ostraka_gateway import cluster as cluster_module
from ostraka_gateway.answer_cache import AnswerCache
from ostraka_gateway.cluster import Cluster
from ostraka_gateway.dispatcher import Dispatcher, Reply
from ostraka_gateway.metrics import Metrics
from ostraka_gateway.parts import KILLS_A_CRASH, MAX_BLAME
from ostraka_gateway.roster import Roster
from ostraka_gateway.routing import candidates
from ostraka_gateway.speeds import FRESH_S
from ostraka_gateway.waiting_line import PATIENCE_S
from ostraka_gateway.worker import WorkerState
from ostraka_shared import errors
from ostraka_shared.codec import MAX_FRAME_BYTES, decode, encode
from ostraka_shared.messages import (
    Beat,
    Bye,
    Cancel,
    Drain,
    Failed,
    Hello,
    Ready,
    Refused,
    Result,
    Started,
    Welcome,
    Work,
)
from tests.clocks import FakeTimeLoop

CREDIT = 100
LIMIT = 1000


def tokens(count, of="a"):
    """Each request's own, so that none shares another's answer."""
    return zlib.crc32(of.encode()).to_bytes(4, "little") * count


def question(name, count, prompts):
    return b"", tuple(tokens(count, f"{name} {number}") for number in range(prompts)), 0


def p_yes_of(suffixes):
    return tuple(zlib.crc32(suffix) / 2**32 for suffix in suffixes)


class World:
    """A dispatcher on a loop of its own, with workers that only hold what they are sent."""

    def __init__(self):
        self.loop = FakeTimeLoop()
        self.roster = Roster("c", "f", 0.0)
        self.metrics = Metrics()
        self.sent = []
        self.unreachable = set()
        self.dispatcher = Dispatcher(
            self.roster, self.metrics, self._send, lambda worker: self.lose(worker, "unreachable"), LIMIT
        )
        self.tasks = {}

    def _send(self, identity, message):
        if identity in self.unreachable:
            return False
        self.sent.append((identity.decode(), message))
        return True

    def join(self, name, credit=CREDIT):
        worker = self.roster.join(name.encode(), Hello("c", name, 1, "f", "h", 1, ()), self.loop.time())
        self.roster.ready(worker, Ready("fake 1", credit, 350.0))
        self.call(self.dispatcher.pump)
        return worker

    def lose(self, worker, reason="exit"):
        self.roster.remove(worker, self.loop.time())
        self.dispatcher.take_back(worker, reason)
        self.dispatcher.pump()

    def call(self, function, *args, **options):
        """On the loop, as the cluster's callbacks are."""
        self.loop.call_soon(lambda: function(*args, **options))
        self.loop.settle()

    def ask(self, name, count=10, deadline_s=9.0, prompts=1):
        coroutine = self.dispatcher.ask(name, question(name, count, prompts), self.loop.time() + deadline_s)
        self.tasks[name] = self.loop.create_task(coroutine)
        self.loop.settle()
        return self.tasks[name]

    def started(self, worker, *names):
        self.roster.started(worker, Started(names, 10))

    def answer(self, worker, name, attempt=1, p_yes=(0.5,), inference_ms=2.0):
        self.call(self.dispatcher.answered, worker, Result(name, attempt, p_yes, 1.0, inference_ms))

    def fail(self, worker, name, code="engine_failed", attempt=1):
        self.call(self.dispatcher.failed, worker, Failed(name, attempt, code, "why"))

    def sent_to(self, worker):
        sent = [message for name, message in self.sent if name == worker.identity.decode()]
        return [(message.request_id, message.attempt) for message in sent if isinstance(message, Work)]

    def withdrawn_from(self, worker):
        sent = [message for name, message in self.sent if name == worker.identity.decode()]
        return [(message.request_id, message.attempt) for message in sent if isinstance(message, Cancel)]

    @property
    def table(self):
        return self.dispatcher._table

    @property
    def late(self):
        return self.metrics.late_results._value.get()

    def is_empty(self):
        d = self.dispatcher
        return (d.queued_tokens, d.queued_requests, d.in_flight_requests) == (0, 0, 0)

    def close(self):
        for task in self.tasks.values():
            task.cancel()
        self.loop.settle()
        for task in self.tasks.values():
            task.cancelled() or task.exception()
        self.loop.close()


@pytest.fixture
def world():
    world = World()
    yield world
    world.close()


def refused(world, name, error, **options):
    task = world.ask(name, **options)
    assert task.done()
    assert isinstance(task.exception(), error)
    return task.exception()


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
    assert world.is_empty()


def test_queue_time_is_never_negative(world):
    worker = world.join("w0")
    task = world.ask("a")
    world.answer(worker, "a", inference_ms=5000.0)
    assert task.result().queue_ms == 0.0


def test_nobody_to_ask(world):
    assert refused(world, "a", errors.NoWorkerReady).retry_after_s
    assert world.is_empty()


def test_a_deadline_in_the_past_is_not_sent(world):
    world.join("w0")
    refused(world, "a", errors.DeadlineExceeded, deadline_s=0.0)
    assert world.sent == []
    assert world.is_empty()


def test_what_has_no_room_waits_in_order_and_is_sent_when_there_is(world):
    worker = world.join("w0")
    for name, count in (("a", 40), ("b", 40), ("c", 40), ("d", 20), ("e", 40)):
        world.ask(name, count)
    assert world.sent_to(worker) == [("a", 1), ("b", 1)]  # d would fit, but c is before it
    assert (world.dispatcher.queued_requests, world.dispatcher.queued_tokens) == (3, 100)
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


def test_a_full_queue_refuses(world):
    worker = world.join("w0")
    world.ask("a", LIMIT)
    world.ask("b", LIMIT)
    refused(world, "c", errors.Overloaded, count=1)
    assert world.dispatcher.queued_tokens == LIMIT
    world.answer(worker, "a")
    world.call(world.dispatcher.pump)
    assert not world.ask("d", 1).done()


def busy_for(world, worker, tokens, seconds):
    """A call that was measured just now."""
    worker.last_heard = world.loop.time() - seconds
    worker.running_tokens = tokens
    world.roster.call_ended(worker, world.loop.time())


def test_what_cannot_be_in_time_is_told_so_at_once(world):
    worker = world.join("w0")
    world.ask("nobody knows", 50_000, deadline_s=1.0)
    world.answer(worker, "nobody knows")
    busy_for(world, worker, 100, 1.0)
    error = refused(world, "a", errors.DeadlineExceeded, count=900, deadline_s=1.0)
    assert error.retry_after_s is None
    assert "at best" in str(error)
    assert not world.ask("b", 900, deadline_s=30.0).done()
    assert [name for name, _ in world.sent_to(worker)] == ["nobody knows", "b"]


def test_an_old_measurement_refuses_nobody(world):
    worker = world.join("w0")
    busy_for(world, worker, 100, 1.0)
    world.loop.advance(FRESH_S)
    assert not world.ask("a", 900, deadline_s=1.0).done()


def test_a_busy_worker_is_no_wait_where_another_is_idle(world):
    busy, idle = world.join("w0"), world.join("w1")
    for worker in (busy, idle):
        busy_for(world, worker, 100, 1.0)
    world.ask("a", 90)
    assert not world.ask("b", 50, deadline_s=0.7).done()
    refused(world, "c", errors.Overloaded, count=10, deadline_s=0.7)


def test_an_expired_request_ends_and_its_late_result_is_counted(world):
    worker = world.join("w0")
    task = world.ask("a", deadline_s=1.0)
    world.loop.advance(1.0)
    assert isinstance(task.exception(), errors.DeadlineExceeded)
    assert worker.held == {"a": 10}  # the worker has it still, and less room for that
    world.answer(worker, "a")
    assert worker.held == {}
    assert world.late == 1
    assert world.is_empty()


def test_a_request_that_expires_while_it_waits_leaves_the_queue(world):
    world.join("w0")
    world.ask("a", 100)
    task = world.ask("b", 100, deadline_s=1.0)
    world.loop.advance(1.0)
    assert isinstance(task.exception(), errors.DeadlineExceeded)
    assert world.dispatcher.queued_tokens == 0


def test_a_client_that_leaves_takes_its_request_along(world):
    worker = world.join("w0")
    world.ask("a", 100)
    world.ask("b", 100).cancel()
    world.loop.settle()
    assert world.dispatcher.queued_tokens == 0
    world.tasks["a"].cancel()
    world.loop.settle()
    assert world.is_empty()
    world.answer(worker, "a")
    assert world.late == 1


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
    assert world.dispatcher.queued_tokens == 0


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
    assert world.is_empty()


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
    assert world.late == 1
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
    assert world.late == 2


def test_what_a_lost_worker_held_goes_first_in_its_old_order(world):
    lost = world.join("w0")
    for name in "abcde":
        world.ask(name, 40)
    assert world.sent_to(lost) == [("a", 1), ("b", 1)]
    world.call(world.lose, lost, "replaced")
    assert world.dispatcher.queued_tokens == 200
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
    assert world.is_empty()


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


def test_a_client_that_left_is_not_served(world):
    worker = world.join("w0", credit=20)
    sent, waiting = world.ask("sent", 20), world.ask("waiting", 20)
    for name in ("sent", "waiting", "unknown"):
        world.call(world.dispatcher.abandon, name)
    assert isinstance(sent.exception(), errors.ClientLeft)
    assert isinstance(waiting.exception(), errors.ClientLeft)
    world.answer(worker, "sent", attempt=1)
    assert world.sent_to(worker) == [("sent", 1)]
    assert world.is_empty()


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


def test_a_worker_that_cannot_be_reached_is_lost_and_nothing_else_is(world):
    first, second = world.join("w0"), world.join("w1")
    world.ask("a", 30)
    world.ask("b", 30)
    assert (world.sent_to(first), world.sent_to(second)) == ([("a", 1)], [("b", 1)])
    world.unreachable.add(b"w0")
    world.ask("c", 30)
    assert list(world.roster) == [second]
    assert {name for name, _ in world.sent_to(second)} == {"b", "a", "c"}
    assert world.dispatcher.queued_tokens == 0


def test_all_unreachable(world):
    for name in ("w0", "w1", "w2"):
        world.join(name)
        world.unreachable.add(name.encode())
    task = world.ask("a")
    assert not task.done()
    assert len(world.roster) == 0
    assert world.dispatcher.queued_tokens == 10
    heir = world.join("w3")
    world.answer(heir, "a", attempt=world.sent_to(heir)[0][1])
    assert task.result()


def test_a_request_too_large_for_a_frame_is_the_clients_to_mend(world):
    world.join("w0")
    refused(world, "a", errors.InvalidRequest, count=MAX_FRAME_BYTES // 4)
    assert world.is_empty()


@pytest.mark.parametrize("prompts", [1, 1000, 250_000])
def test_the_largest_request_that_is_let_in_fits_a_frame(world, prompts):
    world.join("w0")
    name = "req_" + "0" * 24
    count = MAX_FRAME_BYTES // prompts // 4
    while world.ask(name, count=count, prompts=prompts).done():
        count -= max(1, 64 // prompts)
    ((_, work),) = world.sent
    assert len(encode(work)) <= MAX_FRAME_BYTES


def test_a_request_of_many_prompts_is_read_by_all_who_are_idle_and_joined(world):
    workers = [world.join(f"w{number}", credit=400) for number in range(2)]
    task = world.ask("a", 40, prompts=6)
    assert [world.sent_to(worker) for worker in workers] == [[("a/0", 1)], [("a/1", 1)]]
    works = [message for _, message in world.sent]
    assert sorted(suffix for work in works for suffix in work.suffixes) == sorted(question("a", 40, 6)[1])
    world.answer(workers[1], "a/1", p_yes=p_yes_of(works[1].suffixes), inference_ms=7.0)
    assert not task.done(), "never a partial answer"
    world.answer(workers[0], "a/0", p_yes=p_yes_of(works[0].suffixes), inference_ms=9.0)
    assert task.result().p_yes == p_yes_of(question("a", 40, 6)[1])
    assert task.result().inference_ms == 9.0
    assert world.is_empty()


def test_a_failed_part_fails_the_whole_and_the_other_is_withdrawn(world):
    workers = [world.join(f"w{number}", credit=400) for number in range(2)]
    task = world.ask("a", 40, prompts=6)
    world.fail(workers[1], "a/1")
    assert isinstance(task.exception(), errors.EngineFailed)
    assert world.withdrawn_from(workers[0]) == [("a/0", 1)]
    assert world.withdrawn_from(workers[1]) == []
    world.fail(workers[0], "a/0", "cancelled")
    assert workers[0].held == {}
    assert (world.late, list(world.table._parts)) == (0, [])


def test_a_lost_workers_part_alone_is_sent_again(world):
    workers = [world.join(f"w{number}", credit=400) for number in range(2)]
    task = world.ask("a", 40, prompts=6)
    works = {message.request_id: message for _, message in world.sent}
    world.started(workers[0], "a/0")
    world.call(world.lose, workers[0])
    assert world.sent_to(workers[1]) == [("a/1", 1)]  # it runs alone from now on
    world.answer(workers[1], "a/1", p_yes=p_yes_of(works["a/1"].suffixes))
    world.call(world.dispatcher.pump)
    assert world.sent_to(workers[1]) == [("a/1", 1), ("a/0", 2)]
    world.answer(workers[1], "a/0", attempt=2, p_yes=p_yes_of(works["a/0"].suffixes))
    assert task.result().p_yes == p_yes_of(question("a", 40, 6)[1])


def test_two_parts_of_a_request_that_kill_a_worker_each_make_it_poison(world):
    workers = [world.join(f"w{number}", credit=400) for number in range(2)]
    task = world.ask("a", 40, prompts=6)
    for number, worker in enumerate(workers):
        world.started(worker, f"a/{number}")
    world.call(world.lose, workers[0])
    world.call(world.lose, workers[1])
    assert isinstance(task.exception(), errors.PoisonedRequest)
    assert "request a" in str(task.exception())
    assert world.sent_to(world.join("w2")) == []


def test_it_is_not_split_while_others_wait(world):
    worker, other = world.join("w0"), world.join("w1")
    world.ask("a", 100)
    world.ask("b", 100)
    world.ask("many", 20, prompts=4)
    world.ask("c", 100)
    world.answer(worker, "a")
    world.answer(other, "b")
    world.call(world.dispatcher.pump)
    assert (world.sent_to(worker)[1:], world.sent_to(other)[1:]) == ([("many", 1)], [("c", 1)])


def test_a_long_request_waits_for_no_longer_one(world):
    worker = world.join("w0")
    for name, tokens in (("book", 850), ("second book", 820), ("page", 190), ("a", 30), ("second page", 180)):
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


def suspect(world, worker):
    worker.state = WorkerState.SUSPECT
    world.call(world.dispatcher.suspected, worker)


def test_what_a_suspect_holds_is_given_to_others_at_once_and_the_first_answer_wins(world):
    first, other = world.join("w0"), world.join("w1")
    task = world.ask("a")
    world.started(first, "a")
    suspect(world, first)
    assert world.sent_to(other) == [("a", 2)]
    world.answer(other, "a", attempt=2, p_yes=(0.25,))
    assert task.result().p_yes == (0.25,)
    assert world.withdrawn_from(first) == [("a", 1)]
    assert first.held == {"a": 10}
    world.answer(first, "a", p_yes=(0.25,))
    assert (first.held, list(world.table._parts), world.late) == ({}, [], 1)
    assert world.metrics.duplicates.labels("same")._value.get() == 1


def test_two_different_answers_are_told(world):
    first, other = world.join("w0"), world.join("w1")
    task = world.ask("a")
    suspect(world, first)
    world.answer(first, "a", p_yes=(0.25,))
    assert task.result().p_yes == (0.25,)
    assert world.withdrawn_from(other) == [("a", 2)]
    with capture_logs() as lines:
        world.answer(other, "a", attempt=2, p_yes=(0.2500001,))
    assert [line["event"] for line in lines] == ["answers_differ"]
    assert world.metrics.duplicates.labels("different")._value.get() == 1


def test_a_suspect_that_speaks_again_needs_no_copies(world):
    first = world.join("w0")
    world.ask("a", 60)
    suspect(world, first)
    assert world.dispatcher.queued_requests == 1
    first.state = WorkerState.READY
    world.call(world.dispatcher.trusted, first)
    assert world.dispatcher.queued_requests == 0
    world.answer(first, "a")
    assert world.tasks["a"].result()


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


def test_what_nobody_waits_for_is_withdrawn(world):
    worker = world.join("w0", credit=20)
    world.ask("a", 20)
    world.call(world.dispatcher.abandon, "a")
    assert world.withdrawn_from(worker) == [("a", 1)]
    world.ask("b", 20, deadline_s=1.0)
    world.fail(worker, "a", "cancelled")
    world.call(world.dispatcher.pump)
    world.loop.advance(1.0)
    assert world.withdrawn_from(worker) == [("a", 1), ("b", 1)]


def ask_the_same(world, name, as_name, deadline_s=9.0):
    asked = question(as_name, 10, 1)
    world.tasks[name] = world.loop.create_task(world.dispatcher.ask(name, asked, world.loop.time() + deadline_s))
    world.loop.settle()
    return world.tasks[name]


def test_identical_requests_share_one_execution(world):
    worker = world.join("w0")
    first = world.ask("a")
    second = ask_the_same(world, "b", "a")
    assert world.sent_to(worker) == [("a", 1)]
    assert world.dispatcher.in_flight_requests == 2
    world.answer(worker, "a", p_yes=(0.75,))
    assert (first.result().p_yes, second.result().p_yes) == ((0.75,), (0.75,))
    assert world.is_empty()
    ask_the_same(world, "c", "a")
    assert world.sent_to(worker) == [("a", 1), ("c", 1)], "what is answered is asked anew"


def test_a_kept_answer_is_given_without_a_worker(world):
    worker = world.join("w0")
    world.dispatcher.answers = AnswerCache(10_000)
    world.ask("a")
    world.answer(worker, "a", p_yes=(0.75,))
    world.call(world.lose, worker)
    again = ask_the_same(world, "b", "a")
    assert again.result() == Reply((0.75,), 0.0, 0.0)
    assert world.metrics.cached._value.get() == 1
    assert world.is_empty()


def test_a_failure_is_not_kept(world):
    worker = world.join("w0")
    world.dispatcher.answers = AnswerCache(10_000)
    world.ask("a")
    world.fail(worker, "a")
    ask_the_same(world, "b", "a")
    assert world.sent_to(worker) == [("a", 1), ("b", 1)]


def test_a_shared_execution_lives_as_long_as_one_waits(world):
    worker = world.join("w0")
    first, second = world.ask("a"), ask_the_same(world, "b", "a")
    world.call(world.dispatcher.abandon, "a")
    assert isinstance(first.exception(), errors.ClientLeft)
    assert world.withdrawn_from(worker) == []
    world.answer(worker, "a")
    assert second.result()


def test_each_of_those_who_share_keeps_its_own_deadline_and_name(world):
    worker = world.join("w0")
    first, second = world.ask("a", deadline_s=1.0), ask_the_same(world, "b", "a", deadline_s=30.0)
    world.loop.advance(1.0)
    assert isinstance(first.exception(), errors.DeadlineExceeded)
    world.fail(worker, "a", "deadline_exceeded")  # it was told of the first one's alone
    world.call(world.dispatcher.pump)
    assert world.sent[-1][1].deadline_ms == 29_000
    for number in range(2):
        (worker,) = world.roster
        world.started(worker, "a")
        world.call(world.lose, worker)
        world.join(f"x{number}")
    assert "request b" in str(second.exception())


def test_one_who_is_in_a_hurry_makes_what_is_shared_urgent(world):
    worker = world.join("w0", credit=10)
    world.ask("z")
    for name in ("a", "b"):
        world.ask(name)
    ask_the_same(world, "hurry", "b", deadline_s=2.0)
    world.answer(worker, "z")
    world.call(world.dispatcher.pump)
    assert world.sent_to(worker)[1:] == [("b", 1)]


# A cluster of workers that do anything at any time, in front of the gateway's real cluster, roster and dispatcher.


class FakeSocket:
    """What the gateway sends is checked and put into the worker's inbox, if it can be reached."""

    def __init__(self, on_message, on_garbage):
        self.hear = on_message
        self.on_garbage = on_garbage
        self.deliver_first = []

    def bind(self, endpoint):
        pass

    def close(self):
        pass

    def send(self, identity, message):
        return self.world.sent(identity, decode(encode(message)))

    def take_arrived(self):
        arrived, self.deliver_first = self.deliver_first, []
        for identity, message in arrived:
            self.hear(identity, message)


class FakeWatch:
    def __init__(self):
        self.exits = {}
        self.killed = []

    def add(self, identity, _host, _pid, on_exit):
        self.exits[identity] = on_exit

    def is_sibling(self, _identity):
        return True

    def kill(self, identity):
        self.killed.append(identity)

    def remove(self, identity):
        self.exits.pop(identity, None)


class FakeWorker:
    def __init__(self, name, incarnation):
        self.name = name
        self.incarnation = incarnation
        self.identity = f"{name}.{incarnation}".encode()
        self.is_alive = True
        self.is_hung = False
        self.is_reachable = True
        self.queue = []
        self.cancelled = set()
        self.running = []
        """The calls it was in when it last spoke: what a crash is held against."""
        self.batch = []

    @property
    def hello(self):
        return Hello("c", self.name, self.incarnation, "f", "h", 1, ())


NAMES = ("w0", "w1", "w2")
COUNTS = st.integers(1, 60)


class ClusterMachine(RuleBasedStateMachine):
    def __init__(self):
        super().__init__()
        self.loop = FakeTimeLoop()
        with pytest.MonkeyPatch.context() as monkeypatch:
            monkeypatch.setattr(cluster_module, "WorkerSocket", FakeSocket)
            monkeypatch.setattr(cluster_module, "ProcessWatch", FakeWatch)
            self.roster = Roster("c", "f", 0.0)
            self.cluster = Cluster(self.roster, Metrics(), heartbeat_ms=500, queue_tokens=LIMIT)
        self.socket, self.watch = self.cluster._socket, self.cluster._watch
        self.socket.world = self
        self.dispatcher = self.cluster.dispatcher
        self.table = self.dispatcher._table
        take_back = self.dispatcher.take_back

        def counted(worker, reason):
            if reason in ("exit", "silent", "killed"):
                self.count_ends(worker, self.kills if reason == "killed" else self.crashes)
            take_back(worker, reason)

        self.dispatcher.take_back = counted
        self.processes = {}
        self.incarnations = dict.fromkeys(NAMES, 0)
        self.asked = {}
        self.ended = {}
        self.crashes = {}
        self.kills = {}
        self.questions = {}
        self.first = {}
        self.random = random.Random(0)
        self.number = 0
        self.call(self.cluster.start, "ipc:///nowhere/none")  # where nobody's note can be left

    def call(self, function, *args):
        self.loop.call_soon(lambda: function(*args))
        self.loop.settle()
        self.collect()

    def collect(self):
        """Every end is looked at once, and judged."""
        for name, task in self.asked.items():
            if not task.done() or name in self.ended:
                continue
            if task.cancelled():
                self.ended[name] = "left"
                continue
            error = task.exception()
            if error is None:
                assert task.result().p_yes == p_yes_of(self.questions[name][1]), "whole and right"
            elif isinstance(error, errors.PoisonedRequest):
                assert self.blame(self.first[name]) == MAX_BLAME
            else:
                assert isinstance(error, errors.ServingError), error
            self.ended[name] = error or "answered"

    def sent(self, identity, message):
        process = self.processes.get(identity)
        if process is None or not process.is_reachable:
            return False
        match message:
            case Work():
                worker = self.roster.find(identity)
                assert worker.state is WorkerState.READY
                first = message.request_id.partition("/")[0]
                assert any(not self.asked[name].done() for name in self.asked if self.first.get(name, name) == first)
                part = self.table._parts.find(message.request_id)
                suspects = [holder for holder in part.holders if holder.state is WorkerState.SUSPECT]
                assert self.blame(first) + len(suspects) < MAX_BLAME, "a third try"
                assert message.deadline_ms >= 1
                process.queue.append(message)
            case Cancel():
                process.cancelled.add((message.request_id, message.attempt))
            case Refused(code="unknown_worker"):
                process.queue.clear()
                if process.is_alive:
                    self.loop.call_soon(self.introduce, process)
            case Refused():
                process.is_alive = False
            case _:
                assert isinstance(message, Welcome)
        return True

    def introduce(self, process):
        self.say(process, process.hello)
        self.say(process, Ready("fake 1", CREDIT, 350.0))

    def say(self, process, message):
        if not isinstance(message, (Result, Failed, Hello)):
            process.running = []
        self.socket.hear(process.identity, message)

    def blame(self, name):
        return self.crashes.get(name, 0) + self.kills.get(name, 0) // KILLS_A_CRASH

    def count_ends(self, worker, counts):
        """Where a process died before its STARTED was heard, it can only be told of one that it held alone."""
        identity = worker.identity
        running = self.processes[identity].running or (list(worker.held) if len(worker.held) == 1 else [])
        parts = [part for name in running if (part := self.table._parts.find(name))]
        for name in {part.request.request_id for part in parts if part.is_wanted and worker in part.holders}:
            counts[name] = counts.get(name, 0) + 1

    def pick(self, *, joined=False):
        found = [p for p in self.processes.values() if p.is_alive]
        found = [p for p in found if not joined or self.roster.find(p.identity)]
        return self.random.choice(found) if found else None

    @initialize(seed=st.integers(0, 2**32))
    def begin(self, seed):
        self.random = random.Random(seed)
        self.restart_the_dead()

    def start(self, name, *, is_ready=True):
        for old in self.processes.values():
            if old.name == name:
                old.is_alive = False
        self.incarnations[name] += 1
        process = FakeWorker(name, self.incarnations[name])
        self.processes[process.identity] = process
        self.call(self.say, process, process.hello)
        if is_ready:
            self.call(self.say, process, Ready("fake 1", CREDIT, 350.0))

    @rule()
    def restart_the_dead(self):
        for name in NAMES:
            if not any(p.is_alive for p in self.processes.values() if p.name == name):
                self.start(name)

    @rule(name=st.sampled_from(NAMES), is_ready=st.booleans())
    def replace(self, name, is_ready):
        """The new process says HELLO before the old one's death is noticed."""
        self.start(name, is_ready=is_ready)

    @rule(count=COUNTS, prompts=st.integers(1, 3), deadline_s=st.sampled_from([3.0, 9.0, 60.0]))
    def ask_about_a_state(self, count, prompts, deadline_s):
        """One of a few, so that some worker keeps it."""
        self.number += 1
        state = tokens(40, self.random.choice("xyz"))
        _, suffixes, _ = question(f"r{self.number}", count, prompts)
        self.ask_for(f"r{self.number}", (state, suffixes, 40), self.loop.time() + deadline_s)

    @rule(count=COUNTS, prompts=st.integers(1, 3), deadline_s=st.sampled_from([0.5, 3.0, 9.0, 60.0]))
    def ask(self, count, prompts, deadline_s):
        self.number += 1
        name = f"r{self.number}"
        deadline = self.loop.time() + deadline_s
        self.ask_for(name, question(name, count, prompts), deadline)

    def ask_for(self, name, asked, deadline):
        self.questions[name] = asked
        self.asked[name] = self.loop.create_task(self.dispatcher.ask(name, asked, deadline))
        self.loop.settle()
        request = self.dispatcher._asked.get(asked)
        self.first[name] = request.request_id if request else name
        self.collect()

    @precondition(lambda self: self.asked)
    @rule(deadline_s=st.sampled_from([0.5, 3.0, 60.0]))
    def ask_the_same(self, deadline_s):
        """As one that is still open, or was."""
        self.number += 1
        asked = self.questions[self.random.choice(list(self.asked)[-4:])]
        self.ask_for(f"r{self.number}", asked, self.loop.time() + deadline_s)

    @rule(size=st.integers(2, 12))
    def burst(self, size):
        for _ in range(size):
            self.ask(self.random.randint(1, 60), 1, self.random.choice([2.0, 60.0, 60.0]))

    @rule(turns=st.integers(1, 8), failing=st.sampled_from([None, None, None, "engine_failed", "deadline_exceeded"]))
    def work(self, turns, failing):
        """Each worker that moves begins a call, or ends the one it is in; also one that was given up meanwhile."""
        for _ in range(turns):
            for process in self.random.sample(list(self.processes.values()), len(self.processes)):
                if process.is_alive and not process.is_hung:
                    self.end_a_call(process, failing) if process.batch else self.begin_a_call(process)
            self.loop.advance(0.01)
            self.collect()

    def begin_a_call(self, process):
        for work in [each for each in process.queue if (each.request_id, each.attempt) in process.cancelled]:
            if work not in process.queue:
                continue  # refused meanwhile, by a gateway that does not know it any more
            process.queue.remove(work)
            self.call(self.say, process, Failed(work.request_id, work.attempt, "cancelled", "why"))
        size = self.random.randint(1, 4)
        process.batch, process.queue = process.queue[:size], process.queue[size:]
        if process.batch:
            names = tuple(work.request_id for work in process.batch)
            is_known = self.roster.find(process.identity)
            self.call(self.say, process, Started(names, sum(work.tokens for work in process.batch)))
            process.running = list(names) if is_known else []

    def end_a_call(self, process, failing):
        batch, process.batch, process.running = process.batch, [], []
        for work in batch:
            failed = Failed(work.request_id, work.attempt, failing or "", "why")
            self.call(self.say, process, failed if failing else self.result(work))

    def result(self, work):
        return Result(work.request_id, work.attempt, p_yes_of(work.suffixes), 0.5, 0.5)

    @rule(attempt=st.integers(1, 4))
    def claim(self, attempt):
        """A worker answers what it does not hold: another's request, another attempt, an unknown one."""
        if (process := self.pick()) and self.asked:
            name = self.random.choice([*self.asked, "unknown"])
            part, worker = self.table._parts.find(name), self.roster.find(process.identity)
            if part is None or part.holders.get(worker) != attempt:
                process.running = []
                self.call(self.say, process, Result(name, attempt, (2 / 3,), 0.0, 0.0))

    @rule(heard=st.booleans(), call=st.booleans(), cause=st.sampled_from(["exit", "exit", "killed"]))
    def die(self, heard, call, cause):
        """Of a signal. What it had sent before may be in the socket still."""
        alive = [p for p in self.processes.values() if p.is_alive]
        if not alive:
            return
        # Best one with a request that was in a crash before: else a second crash is too rare to be seen.
        process = max(alive, key=lambda p: max([self.blame(w.request_id) + 1 for w in p.queue], default=0))
        if call and not process.batch:
            self.begin_a_call(process)
        process.is_alive = False
        if on_exit := self.watch.exits.get(process.identity):
            if heard and process.batch:
                self.socket.deliver_first = [(process.identity, self.result(process.batch[0]))]
                process.running = []
            with pytest.MonkeyPatch.context() as monkeypatch:
                monkeypatch.setattr(cluster_module, "find_note", lambda *_: cause)
                self.call(on_exit)
        if self.random.random() < 0.5:
            self.restart_the_dead()

    @rule()
    def hang(self):
        if process := self.pick(joined=True):
            process.is_hung = True

    @rule()
    def cut_a_link(self):
        if process := self.pick(joined=True):
            process.is_reachable = False

    @rule()
    def all_is_well_again(self):
        for process in self.processes.values():
            process.is_reachable, process.is_hung = process.is_alive, False

    @rule(finish=st.booleans())
    def drain(self, finish):
        if process := self.pick(joined=True):
            self.call(self.say, process, Drain())
            if finish and not process.batch:
                queue, process.queue = process.queue, []
                for work in queue:
                    self.call(self.say, process, self.result(work))
            self.call(self.say, process, Bye("drained"))
            process.is_alive = False

    @precondition(lambda self: self.asked)
    @rule()
    def client_leaves(self):
        self.asked[self.random.choice(list(self.asked))].cancel()
        self.loop.settle()
        self.collect()

    @rule(beats=st.sampled_from([1, 1, 2, 3, 8]))
    def time_passes(self, beats):
        for _ in range(beats):
            self.loop.advance(0.4)
            self.collect()
            for process in list(self.processes.values()):
                if process.is_alive and not process.is_hung and not process.batch:
                    self.call(self.say, process, Beat(len(process.queue), 0, 0, 0, 0, 0))

    @precondition(lambda self: self.random.random() < 0.2)
    @rule()
    def the_gateway_itself_is_stopped(self):
        self.loop.advance(12.0)
        self.collect()

    @invariant()
    def the_count_of_what_waits_is_exact(self):
        waiting = [part for part in self.table._parts if part.ticket]
        assert self.dispatcher.queued_tokens == sum(part.tokens for part in waiting)
        assert self.dispatcher.queued_requests == len(waiting)
        assert all(part.is_wanted for part in waiting)

    @invariant()
    def every_open_request_waits_or_is_held(self):
        open_ones = {name for name, task in self.asked.items() if not task.done()}
        assert set(self.dispatcher._waiters) == open_ones
        open_ones = {self.first[name] for name in open_ones}
        parts = self.table._parts
        assert {part.request.request_id for part in parts if part.is_wanted} == open_ones
        for part in parts:
            assert part.holders or part.ticket, "nobody would miss it"
            for holder in part.holders:
                assert self.roster.find(holder.identity) is holder
                assert part.part_id in holder.held
            if part.ticket:
                assert all(holder.state is WorkerState.SUSPECT for holder in part.holders)

    @invariant()
    def what_is_outstanding_is_what_is_held(self):
        for worker in self.roster:
            assert worker.outstanding_tokens == sum(worker.held.values()) >= 0
            assert worker.claimed_tokens == sum(worker._claims.values()) >= 0
        names = [worker.hello.worker_id for worker in self.roster]
        assert len(names) == len(set(names))

    @invariant()
    def nothing_waits_that_could_be_sent(self):
        for part in self.table.sending.line.heads()[:1]:
            able = candidates(self.roster.ready_workers(), part.tokens, part.request.state)
            assert not [worker for worker in able if not (part.request.runs_alone and worker.held)]

    def teardown(self):
        """Whatever happened, a minute later each request has ended, and nothing is left of it."""
        self.loop.advance(61.0)
        self.collect()
        assert set(self.ended) == set(self.asked)
        dispatcher = self.dispatcher
        assert (dispatcher.queued_tokens, dispatcher.queued_requests, dispatcher.in_flight_requests) == (0, 0, 0)
        self.call(self.cluster.stop)
        assert not asyncio.all_tasks(self.loop)
        self.loop.close()


TestClusterMachine = ClusterMachine.TestCase
# Not shrunk: what a worker does follows from a seed, so that shorter is not simpler, and it would take minutes.
TestClusterMachine.settings = settings(
    max_examples=60, stateful_step_count=50, deadline=None, phases=[Phase.reuse, Phase.generate]
)
