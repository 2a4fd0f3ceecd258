"""What a worker says, and what it is then: ready, draining, faster, given to other gateways in part."""

import pytest

from ostraka_gateway import hearing
from ostraka_gateway.routing import candidates
from ostraka_gateway.silence import Silence
from ostraka_gateway.speeds import measured_speeds, tokens_per_s
from ostraka_gateway.worker import WorkerState
from ostraka_shared.messages import Beat, Ready, Started
from tests.unit.gateway.workers import BEAT_S, LOST_S, SILENT_S, SPEED, join, run_call


def test_a_worker_is_ready_once_it_says_so(roster):
    worker = join(roster, ready=False)
    assert worker.state is WorkerState.STARTING
    assert roster.ready_workers() == []
    hearing.ready(worker, Ready("onnxruntime 1.31.1", 512, SPEED))
    assert roster.ready_workers() == [worker]
    assert (worker.engine, worker.credit.tokens) == ("onnxruntime 1.31.1", 512)


def test_a_worker_of_several_gateways_gives_each_its_part(roster):
    """What it holds for the others is before what it is given next; what they use of its time is not free."""
    worker, other = join(roster), join(roster, "w1")
    for each in (worker, other):
        hearing.started(each, Started((), 100, 0))
        hearing.heard(each, roster.pace, 100 / SPEED)
    alone_s, speeds = worker.predicted_s, measured_speeds(roster.ready_workers(), 1.0, 1.0, are_busy=False)
    hearing.started(worker, Started((), 0, 200))
    assert worker.predicted_s == pytest.approx(alone_s + 200 / worker.speed)
    assert candidates([worker, other], 10)[0] is other
    batch_speed = worker.speed
    for each in (worker, other):
        hearing.beat(each, Beat(0, 0, 0, 0, 0, 0, credit_tokens=256, free_share=0.5))
    assert measured_speeds(roster.ready_workers(), 1.0, 1.0, are_busy=False) == pytest.approx(
        [speed / 2 for speed in speeds]
    )
    assert (worker.credit.tokens, worker.speed) == (256, batch_speed)
    hearing.beat(worker, Beat(0, 0, 0, 0, 0, 0))
    assert worker.credit.tokens == 256, "a beat without one leaves it"


@pytest.mark.parametrize("ready", [False, True])
def test_a_draining_worker_gets_no_work_and_stays_so(roster, ready):
    worker = join(roster, ready=ready)
    worker.hold("r", 10, 1)
    hearing.draining(worker)
    hearing.heard(worker, roster.pace, 1.0)
    hearing.ready(worker, Ready("fake 1", 512, SPEED))
    Silence(BEAT_S).judge(roster, 1.0 + SILENT_S)
    assert worker.state is WorkerState.DRAINING
    assert roster.ready_workers() == []
    assert Silence(BEAT_S).judge(roster, 1.0 + LOST_S)[1] == [worker]


def test_speed_is_measured_from_started_to_whatever_comes_next(roster):
    worker = join(roster)
    run_call(roster, worker, 200, 0.25, now=1.0)
    assert worker.tokens_per_s == pytest.approx(800.0, rel=0.1)
    assert (worker.started, worker.running_tokens) == ((), 0)
    assert tokens_per_s(roster.ready_workers()) == worker.tokens_per_s


def test_speed_follows_slowly(roster):
    worker, now = join(roster), 0.0
    now = run_call(roster, worker, 100, 0.1, now)
    now = run_call(roster, worker, 100, 0.2, now)
    assert 500 < worker.tokens_per_s < 1000
    for _ in range(30):
        now = run_call(roster, worker, 100, 0.2, now)
    assert worker.tokens_per_s == pytest.approx(500.0, rel=0.05)


@pytest.mark.parametrize("seconds", [0.0, 1e-6, 1e-3])
def test_a_call_whose_ends_were_read_together_says_little(roster, seconds):
    """A gateway that was busy takes STARTED and RESULT from one read: the queue must not seem to vanish."""
    worker, now = join(roster), 0.0
    for _ in range(5):
        now = run_call(roster, worker, 100, 0.1, now)
    before = worker.tokens_per_s
    run_call(roster, worker, 100, seconds, now)
    assert worker.tokens_per_s == pytest.approx(before, rel=0.25)


def test_only_ready_workers_count_as_speed(roster):
    for name in ("w0", "w1"):
        worker = join(roster, name)
        run_call(roster, worker, 100, 0.1, now=0.0)
    both = tokens_per_s(roster.ready_workers())
    hearing.draining(worker)
    assert 0 < tokens_per_s(roster.ready_workers()) == pytest.approx(both / 2)


def test_release_of_what_is_not_held_changes_nothing(roster):
    worker = join(roster)
    worker.hold("a", 10, 1)
    worker.release("b")
    assert worker.outstanding_tokens == 10
    worker.release("a")
    worker.release("a")
    assert worker.outstanding_tokens == 0
