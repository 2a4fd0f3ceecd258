"""Whether a kind of process grows: on synthetic lives, flat, warming up, in steps, and with a leak."""

import math
import random

import pytest

from benchmarks.faults.processes import Growth, kind_of, measure
from benchmarks.faults.run import REAL
from benchmarks.faults.soak import phase
from benchmarks.faults.trend import (
    AGES_S,
    LEAST_LIVES,
    STRETCHES,
    Gain,
    Verdict,
    at_equal_age,
    gain,
    later_halves,
    student,
)

LEVEL_MB = 80.0
SAMPLE_S = 2.0
HALF_AN_HOUR = 0.5
LEAK_MB_PER_S = 20.0 / 3600
"""An hour's, of which half is more than a twentieth of the level."""


def life(begun, lasts_s, *, leak=0.0, level=LEVEL_MB, seed=0, step_mb=0.0):
    """It fills its caches, 10 MB in the first minutes; with noise, and in steps where `step_mb` says so."""
    rng = random.Random(f"{seed} {begun}")
    points = []
    for number in range(int(lasts_s / SAMPLE_S)):
        age = number * SAMPLE_S
        value = level - 10 * math.exp(-age / 40) + leak * age
        if step_mb:
            value = level + step_mb * ((leak * age) // step_mb)
        points.append((begun + age, value + rng.gauss(0, 0.1)))
    return points


def short_lives(inherited=0.0, **options):
    """Killed every 40 s, for half an hour. `inherited`: what each has more at its start, for each second until then."""
    return [life(begun, 40, level=LEVEL_MB + inherited * begun, **options) for begun in range(0, 1800, 40)]


def test_the_warm_up_of_short_lives_is_no_growth():
    growth = measure(short_lives())
    assert growth.within.gains == 0, "none was long enough"
    assert growth.age_s == 30.0
    assert abs(growth.between.rate) < 1.0
    assert growth.judge(HALF_AN_HOUR) is Verdict.UNCLEAR


def test_neither_is_that_of_a_long_one():
    growth = measure([*short_lives(), life(1800, 600)])
    assert abs(growth.within.rate) < 2.0
    assert growth.judge(HALF_AN_HOUR) is Verdict.FLAT


def test_a_leak_shows_within_a_long_life():
    growth = measure([*short_lives(), life(1800, 600, leak=LEAK_MB_PER_S)])
    assert growth.within.rate == pytest.approx(20.0, abs=growth.within.doubt)
    assert growth.within.doubt < 5.0
    assert growth.judge(HALF_AN_HOUR) is Verdict.GROWS


def test_what_is_inherited_shows_between_short_lives():
    growth = measure([*short_lives(inherited=LEAK_MB_PER_S), life(1800, 600)])
    assert growth.between.rate == pytest.approx(20.0, abs=growth.between.doubt)
    assert growth.judge(HALF_AN_HOUR) is Verdict.GROWS


def test_one_step_is_unclear_and_a_step_in_each_stretch_is_growth():
    one = [(float(at), LEVEL_MB + (at > 430)) for at in range(0, 600, 2)]
    assert measure([one]).judge(HALF_AN_HOUR) is Verdict.UNCLEAR
    assert measure([life(0, 600, leak=2 * LEAK_MB_PER_S, step_mb=0.5)]).judge(HALF_AN_HOUR) is Verdict.GROWS


def test_the_interval_holds_the_truth_as_often_as_it_says():
    rng = random.Random(1)
    missed = 0
    for _ in range(400):
        series = [(float(at), 3.0 * at + rng.gauss(0, 1)) for at in range(60)]
        found = gain([series])
        missed += abs(found.rate - 3.0) > found.doubt
    assert missed < 0.08 * 400


def test_several_lives_have_levels_of_their_own():
    found = gain([life(0, 600, leak=1.0, level=50), life(600, 600, leak=1.0, level=500)])
    assert found.gains == 2 * (STRETCHES - 1)
    assert found.rate == pytest.approx(1.0, abs=0.1)


def test_too_little_says_nothing():
    assert math.isnan(gain([[(0.0, 1.0)], []]).rate)
    assert math.isnan(gain([[(1.0, 1.0)] * STRETCHES]).rate)
    age_s, reached = at_equal_age([life(0, 40)] * (LEAST_LIVES - 1))
    assert (math.isnan(age_s), reached) == (True, [])
    assert Growth(1.0, 1.0, Gain(), Gain(), math.nan).judge(1.0) is Verdict.UNCLEAR


def test_a_later_half_is_one_of_time_and_of_a_long_life():
    (half,) = later_halves([life(100, 600), life(0, 40), []], least_s=300)
    assert half[0][0] == pytest.approx(100 + 300, abs=SAMPLE_S)


def test_lives_are_compared_at_the_greatest_age_that_enough_of_them_reached():
    lives = [life(begun, 25) for begun in range(LEAST_LIVES)] + [life(100, 600)]
    age_s, reached = at_equal_age(lives)
    assert age_s == max(age for age in AGES_S if age < 25)
    assert [begun for begun, _ in reached] == [*range(LEAST_LIVES), 100]


@pytest.mark.parametrize(("free", "t"), [(4, 2.776), (5, 2.571), (10, 2.228), (30, 2.042)])
def test_students_t(free, t):
    assert student(free) == pytest.approx(t, rel=0.01)


@pytest.mark.parametrize(
    ("name", "kind"),
    [("ostraka g0", "gateway"), ("ostraka w12", "worker"), ("ostraka gspare", "gateway spare"), ("python", None)],
)
def test_kinds_are_told_by_name(name, kind):
    assert kind_of(name) == kind


def test_each_kind_of_process_is_left_alone_in_one_third():
    first, second, third = (phase(share)[0] for share in (0.1, 0.5, 0.9))
    assert tuple(first) == REAL
    assert all(target != "gateway" for case in second for order in case.orders for target in order.targets)
    assert {target for case in third for order in case.orders for target in order.targets} == {"gateway"}
    assert len(second) + len(third) == len(REAL)
