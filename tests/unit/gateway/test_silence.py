"""Silence makes suspect, and then lost; how long it may last follows from the running call."""

import pytest

from ostraka_gateway import hearing
from ostraka_gateway.silence import (
    IDLE_S,
    LOAD_S,
    LOST_BEATS,
    LOST_CALLS,
    STARVED_S,
    SUSPECT_BEATS,
    Silence,
    forgive,
)
from ostraka_gateway.worker import WorkerState, patience_s
from ostraka_shared.core_times import CoreTimes
from ostraka_shared.messages import Started
from tests.unit.gateway.workers import BEAT_S, LOST_S, SILENT_S, SPEED, join


def test_silence_makes_suspect_and_a_word_ready_again(roster):
    worker = join(roster)
    assert Silence(BEAT_S).judge(roster, SUSPECT_BEATS * BEAT_S)[1] == []
    assert worker.state is WorkerState.READY
    assert Silence(BEAT_S).judge(roster, SILENT_S)[1] == []
    assert worker.state is WorkerState.SUSPECT
    assert roster.ready_workers() == []
    hearing.heard(worker, roster.pace, SILENT_S)
    assert roster.ready_workers() == [worker]


def join_busy(roster):
    worker = join(roster)
    worker.hold("r", 10, 1)
    return worker


def test_silence_for_too_long_is_loss(roster):
    worker = join_busy(roster)
    assert Silence(BEAT_S).judge(roster, LOST_BEATS * BEAT_S)[1] == []
    assert Silence(BEAT_S).judge(roster, LOST_S)[1] == [worker]


def test_who_holds_nothing_is_suspect_as_soon_but_lost_later(roster):
    worker = join_busy(roster)
    worker.release("r")
    assert Silence(BEAT_S).judge(roster, LOST_S) == ([worker], [])
    assert Silence(BEAT_S).judge(roster, IDLE_S) == ([], [])
    assert roster.ready_workers() == []
    assert Silence(BEAT_S).judge(roster, IDLE_S + 0.001)[1] == [worker]


def test_beats_that_are_further_apart_than_that_are_waited_for(roster):
    worker = join(roster)
    assert Silence(IDLE_S).judge(roster, LOST_BEATS * IDLE_S)[1] == []
    assert Silence(IDLE_S).judge(roster, LOST_BEATS * IDLE_S + 0.001)[1] == [worker]


@pytest.mark.parametrize("tokens", [1, 256, 8192])
def test_a_call_may_take_its_time(roster, tokens):
    worker = join_busy(roster)
    hearing.started(worker, Started(("r",), tokens))
    assert Silence(BEAT_S).judge(roster, SUSPECT_BEATS * BEAT_S + patience_s(tokens, SPEED))[1] == []
    assert worker.state is WorkerState.READY
    assert Silence(BEAT_S).judge(roster, SILENT_S + patience_s(tokens, SPEED))[1] == []
    assert worker.state is WorkerState.SUSPECT
    assert Silence(BEAT_S).judge(roster, LOST_BEATS * BEAT_S + LOST_CALLS * patience_s(tokens, SPEED))[1] == []
    assert Silence(BEAT_S).judge(roster, LOST_S + LOST_CALLS * patience_s(tokens, SPEED))[1] == [worker]


def test_loading_may_take_long_but_not_for_ever(roster):
    worker = join(roster, ready=False)
    assert Silence(BEAT_S).judge(roster, LOAD_S)[1] == []
    assert worker.state is WorkerState.STARTING
    assert Silence(BEAT_S).judge(roster, LOAD_S + 1)[1] == [worker]


def test_patience_grows_with_the_call_and_shrinks_with_the_workers_speed():
    assert patience_s(0, SPEED) == 0.0
    assert patience_s(350, SPEED) > 2.0
    assert patience_s(8192, SPEED) > 8 * patience_s(1024, SPEED)
    assert patience_s(256, SPEED / 10) == pytest.approx(10 * patience_s(256, SPEED))
    assert patience_s(256, 0.0) == 0.0


def test_the_time_this_process_stood_still_is_nobodys_silence(roster):
    worker = join_busy(roster)
    forgive(roster, 1000.0, 1000.0)
    assert Silence(BEAT_S).judge(roster, 1000.0 + LOST_S - 0.1)[1] == []
    assert Silence(BEAT_S).judge(roster, 1000.0 + LOST_S + 0.1)[1] == [worker]


def test_who_was_heard_after_the_pause_is_suspected_as_soon_as_ever(roster):
    worker = join(roster)
    hearing.heard(worker, roster.pace, 1000.0)
    forgive(roster, 1000.0, 1000.0)
    assert Silence(BEAT_S).judge(roster, 1000.0 + SILENT_S)[0] == [worker]


def stand_in_line(silence, worker, until, ran=0.0):
    """Looked at each eighth of a second, it wants a core; of each second it has had `ran` of one."""
    now = worker.last_heard
    while now < until:
        now += 0.125
        if silence.is_overdue(worker, now):
            silence.look(worker, CoreTimes(ran * now, 0.0, wants_core=True), now)
    return now


def test_who_waits_for_a_core_is_suspect_as_soon_but_not_lost_for_it(roster):
    worker, silence = join_busy(roster), Silence(BEAT_S)
    now = stand_in_line(silence, worker, 3 * LOST_S)
    assert silence.judge(roster, now) == ([worker], [])
    now = stand_in_line(silence, worker, LOST_S + STARVED_S + BEAT_S)
    assert silence.judge(roster, now)[1] == [worker]


def test_who_has_a_core_and_says_nothing_hangs(roster):
    worker, silence = join_busy(roster), Silence(BEAT_S)
    assert silence.judge(roster, stand_in_line(silence, worker, LOST_S, ran=1.0))[1] == [worker]


def test_what_was_excused_is_not_excused_the_next_silence(roster):
    worker, silence = join_busy(roster), Silence(BEAT_S)
    now = stand_in_line(silence, worker, 3 * LOST_S)
    hearing.heard(worker, roster.pace, now)
    assert silence.judge(roster, now + LOST_S)[1] == [worker]


def test_where_the_system_does_not_say_nothing_is_excused(roster):
    worker, silence = join_busy(roster), Silence(BEAT_S)
    for now in (1.0, 1.25, 1.5):
        silence.look(worker, None, now)
    assert silence.judge(roster, LOST_S)[1] == [worker]
