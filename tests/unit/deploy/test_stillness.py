"""Silence is judged by what the silent one does with the cores: one that hangs is given up, one that is slow is not."""

from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from ostraka.stillness import SILENT_S, STARVED_S, STEP_S, Stillness
from ostraka_shared.core_times import CoreTimes

LOOK_S = 0.1


def silence(seconds, share=0.0, *, wants_core=False, told=True):
    """Looked at for so long: on a core for that share of the time, in want of one for the rest or not at all.
    (whether each look gave it up, the silence that is held against it)"""
    stillness, now, ran_s, verdicts = Stillness(0.0), 0.0, 0.0, []
    while now < seconds:
        now, ran_s = now + LOOK_S, ran_s + share * LOOK_S
        verdicts.append(stillness.look(now, CoreTimes(ran_s, 0.0, wants_core) if told else None))
    return verdicts, stillness


def test_one_that_is_stopped_is_given_up():
    verdicts, _ = silence(SILENT_S + 2 * LOOK_S)
    assert SILENT_S - LOOK_S <= verdicts.index(True) * LOOK_S <= SILENT_S + LOOK_S


def test_a_loop_that_turns_for_ever_is_given_up_as_one_that_waits_for_ever():
    for share, wants_core in ((1.0, True), (0.0, False)):
        assert silence(SILENT_S + 2 * LOOK_S, share, wants_core=wants_core)[0][-1]


def test_one_that_has_no_core_is_given_up_once_nobody_waits_for_it():
    verdicts, stillness = silence(STARVED_S - LOOK_S, wants_core=True)
    assert not any(verdicts)
    assert [stillness.look(STARVED_S + n * LOOK_S) for n in range(3)][-1]


def test_one_that_is_found_without_a_core_is_not_held_to_the_silence_before():
    stillness = Stillness(0.0)
    stillness.look(0.4)
    stillness.look(0.8, CoreTimes(1.0, 5.0, wants_core=True))
    assert stillness.silent_s == 0.0
    stillness.look(1.2, CoreTimes(1.4, 5.0, wants_core=True))
    assert round(stillness.silent_s, 3) == 0.4, "it turns"


def test_where_the_system_tells_nothing_nothing_is_excused():
    assert silence(SILENT_S + 2 * LOOK_S, wants_core=True, told=False)[0][-1]


def test_a_wait_that_is_told_once_it_is_over_is_excused():
    stillness = Stillness(0.0)
    stillness.look(0.1, CoreTimes(1.0, 5.0, wants_core=False))
    stillness.look(0.6, CoreTimes(1.1, 5.4, wants_core=False))
    assert round(stillness.silent_s, 3) == 0.2


def test_who_looks_late_takes_no_silence_from_the_time_in_which_nobody_looked():
    stillness = Stillness(0.0)
    assert not stillness.look(60.0)
    assert stillness.silent_s == STEP_S


@given(st.lists(st.tuples(st.floats(0.0, 3.0), st.floats(0.0, 1.0), st.booleans()), max_size=40))
def test_no_more_is_held_against_it_than_has_passed_and_its_time_on_a_core_is_never_excused(steps):
    stillness, now, ran_s, least = Stillness(0.0), 0.0, 0.0, 0.0
    stillness.look(now, CoreTimes(0.0, 0.0, wants_core=False))
    for passed_s, share, wants_core in steps:
        now, ran_s = now + passed_s, ran_s + passed_s * share
        least += max(0.0, min(passed_s, STEP_S) - passed_s * (1 - share))
        stillness.look(now, CoreTimes(ran_s, 0.0, wants_core))
    assert least - 1e-6 <= stillness.silent_s <= now + 1e-6


class AsItHappens(RuleBasedStateMachine):
    """Any order of words, looks and pauses."""

    def __init__(self):
        super().__init__()
        self.now = self.said = 0.0
        self.stillness = Stillness(0.0)
        self.is_given_up = False

    @rule()
    def speaks(self):
        self.stillness.heard(self.now)
        self.said, self.is_given_up = self.now, False

    @rule(passed_s=st.floats(0.0, 5.0), wants_core=st.booleans())
    def is_looked_at(self, passed_s, wants_core):
        self.now += passed_s
        before, self.is_given_up = self.is_given_up, self.stillness.look(self.now, CoreTimes(0.0, 0.0, wants_core))
        assert self.is_given_up >= before, "silence alone makes nothing better"

    @invariant()
    def is_judged_by_its_silence_alone(self):
        assert not self.is_given_up or self.now - self.said > SILENT_S


TestAsItHappens = AsItHappens.TestCase
