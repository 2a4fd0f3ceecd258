"""What waits is worked off more slowly than calls are fast: the pace is learned, and holds what is let in to its time."""

import itertools

import pytest

from ostraka_gateway import hearing
from ostraka_gateway.answer_cache import AnswerCache
from ostraka_gateway.dispatcher import Dispatcher
from ostraka_gateway.metrics import Metrics
from ostraka_gateway.pace import LEAST_SHARE, LOOK_S, Pace
from ostraka_gateway.roster import Roster
from ostraka_gateway.single_flight import SingleFlight
from ostraka_shared import errors
from ostraka_shared.messages import Hello, Ready, Result, Started, Work
from tests.clocks import FakeTimeLoop

SPEED = 1000.0


def watch(pace: Pace, begin: float, seconds: float, tokens_per_s: float, *, is_waiting: bool = True) -> float:
    """Ten times a second: what was read is told, and that work waits. The instant after."""
    for tick in range(round(seconds * 10)):
        pace.count(round(tokens_per_s / 10))
        pace.watch(begin + tick / 10, SPEED, is_waiting=is_waiting)
    return begin + seconds


def test_the_pace_is_what_was_read_of_what_calls_promised() -> None:
    pace = Pace()
    now = watch(pace, 0.0, 4.0, 700)
    assert pace.share == pytest.approx(0.7, abs=0.02)
    watch(pace, now, 20.0, 400)
    assert pace.share == pytest.approx(0.4, abs=0.02)


def test_one_look_is_not_believed() -> None:
    pace = Pace()
    watch(pace, 0.0, 2 * LOOK_S, 500)
    assert pace.share == 1.0


def test_a_time_without_waiting_work_says_nothing() -> None:
    pace = Pace()
    now = watch(pace, 0.0, 4.0, 800)
    now = watch(pace, now, 60.0, 10, is_waiting=False)
    assert pace.share == pytest.approx(0.8, abs=0.02)
    for _ in range(50):  # a queue that is there for a moment, again and again
        now = watch(pace, now, LOOK_S - 0.2, 10)
        now = watch(pace, now, 0.2, 10, is_waiting=False)
    assert pace.share == pytest.approx(0.8, abs=0.02)


def test_a_machine_that_was_suspended_keeps_its_pace() -> None:
    pace = Pace()
    now = watch(pace, 0.0, 4.0, 800)
    watch(pace, now + 60.0, 0.1, 0)
    assert pace.share == pytest.approx(0.8, abs=0.02)


def test_it_stays_within_reason() -> None:
    pace = Pace()
    now = watch(pace, 0.0, 4.0, 0)
    assert pace.share == LEAST_SHARE
    watch(pace, now, 30.0, 5 * SPEED)
    assert pace.share == 1.0


def test_what_was_seen_of_a_fault_is_forgotten_and_learned_anew() -> None:
    pace = Pace()
    now = watch(pace, 0.0, 4.0, 100)
    pace.forget(now)
    assert pace.share == 1.0
    now = watch(pace, now, LOOK_S, 100)
    assert pace.share == 1.0
    watch(pace, now, 4.0, 700)
    assert pace.share == pytest.approx(0.6, abs=0.11)


@pytest.mark.parametrize("fault", ["suspected", "silent", "bye"])
def test_a_worker_that_stands_still_or_is_lost_says_nothing_of_the_pace(fault: str) -> None:
    world = Overloaded(0.05, deadline_s=2.0)
    world.run(times=1.5, seconds=5.0)
    assert world.roster.pace.share < 0.95
    worker = next(iter(world.roster))
    if fault == "suspected":
        world.loop.call_soon(world.dispatcher.suspected, worker)
    else:
        world.loop.call_soon(world.dispatcher.take_back, worker, fault)
    world.loop.advance(0.0)
    share, found = world.roster.pace.share, world.outcomes(0.0, 5.0)
    world.loop.close()
    assert (share == 1.0) == (fault != "bye"), "it left in order"
    assert None in found


class Overloaded:
    """Two workers in simulated time, whose calls take what they say, and who lose `gap_s` between two of them."""

    TOKENS, CALL_S, TOKEN_S, BATCH, STEP_S = 110, 0.02, 0.0006, 256, 0.01

    def __init__(self, gap_s: float, deadline_s: float) -> None:
        self.loop, self.gap_s, self.deadline_s = FakeTimeLoop(), gap_s, deadline_s
        self.roster = Roster("c", "f", self.loop.time())
        metrics = Metrics()
        self.dispatcher = Dispatcher(self.roster, metrics, self.send, lambda _: None)
        self.single_flight = SingleFlight(self.roster, metrics, self.dispatcher, AnswerCache(0), 10**6)
        self.queues: dict[bytes, list[Work]] = {b"w0": [], b"w1": []}
        self.calls: dict[bytes, tuple[float, list[Work]]] = {}
        self.free_at = dict.fromkeys(self.queues, 0.0)
        self.asked: list = []
        for identity in self.queues:
            worker = self.roster.join(identity, Hello("c", identity.decode(), 1, "f", "h", 1, ()), self.loop.time())
            hearing.ready(worker, Ready("fake 1", 2 * self.BATCH, 1300.0))

    @property
    def capacity(self) -> float:
        """Requests a second, of batches of two."""
        return 2 * 2 / (self.CALL_S + self.TOKEN_S * 2 * self.TOKENS + self.gap_s)

    def send(self, identity: bytes, message) -> bool:
        if isinstance(message, Work):
            self.queues[identity].append(message)
        return True

    def work(self, identity: bytes) -> None:
        now, worker = self.loop.time(), self.roster.find(identity)
        ends, batch = self.calls.get(identity, (0.0, []))
        if batch and now >= ends:
            hearing.heard(worker, self.roster.pace, now)
            for work in batch:
                self.dispatcher.answered(worker, Result(work.request_id, work.attempt, (0.5,), 0.0, 1.0))
            del self.calls[identity]
            self.free_at[identity] = now + self.gap_s
            self.dispatcher.pump()
        if identity not in self.calls and self.queues[identity] and now >= self.free_at[identity]:
            batch, self.queues[identity] = self.queues[identity][:2], self.queues[identity][2:]
            tokens = sum(work.tokens for work in batch)
            hearing.heard(worker, self.roster.pace, now)
            hearing.started(worker, Started(tuple(work.request_id for work in batch), tokens))
            self.calls[identity] = (now + self.CALL_S + self.TOKEN_S * tokens, batch)

    def run(self, times: float, seconds: float) -> None:
        numbers, due, begun = itertools.count(), self.loop.time(), self.loop.time()
        while due < begun + seconds or not all(task.done() for _, task in self.asked):
            while due <= min(self.loop.time(), begun + seconds):
                name = f"r{next(numbers)}"
                question = (b"", (name.encode().ljust(4 * self.TOKENS, b"."),), 0)
                asked = self.single_flight.ask(name, question, self.loop.time() + self.deadline_s)
                self.asked.append((self.loop.time() - begun, self.loop.create_task(asked)))
                due += 1 / (times * self.capacity)
            for identity in self.queues:
                self.loop.call_soon(self.work, identity)
            self.loop.advance(self.STEP_S)

    def outcomes(self, since_s: float, until_s: float) -> list:
        """Errors, and None for what was answered: of what was asked in that time."""
        errors_found = [(at, task.exception()) for at, task in self.asked]
        return [error and type(error) for at, error in errors_found if since_s <= at < until_s]


@pytest.mark.parametrize("gap_s", [0.0, 0.05])
def test_at_three_times_the_capacity_what_is_let_in_is_answered_in_time(gap_s: float) -> None:
    world = Overloaded(gap_s, deadline_s=2.0)
    world.run(times=3.0, seconds=20.0)
    found = world.outcomes(6.0, 20.0)
    world.loop.close()
    answered, late = found.count(None), found.count(errors.DeadlineExceeded)
    assert answered + late + found.count(errors.Overloaded) == len(found)
    assert late <= 0.01 * answered
    assert answered >= 0.9 * 14.0 * world.capacity
