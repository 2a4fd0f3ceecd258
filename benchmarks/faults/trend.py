"""Whether something grows, over processes of a kind that come and go. Pure.

A process fills its caches at first: what it gains in its first minutes says nothing of the next hour. Two things do:

    within lives      from stretch to stretch of the later halves of those lives that were long
    between lives     from one to the next, what each had at the same age: what a successor inherits

Memory grows in steps, an arena at a time. Points on a step lie close to some line, and a line's own error would take
one step for steady growth; so each is cut into a few stretches, and it is what they gain that is averaged, with the
interval that so few gains allow: one step is no growth yet, a step in most of them is.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise
from statistics import NormalDist, mean, median

Point = tuple[float, float]
"""When, in seconds, or after how many requests; and what was measured then."""
STRETCHES = 6
AGES_S = (5.0, 10.0, 20.0, 30.0, 60.0, 120.0, 240.0)
LEAST_LIVES = 2 * STRETCHES
_NORMAL = NormalDist().inv_cdf(0.975)


class Verdict(StrEnum):
    GROWS = "grows"
    FLAT = "flat"
    UNCLEAR = "unclear"


@dataclass(frozen=True, slots=True)
class Gain:
    """In one unit of what the points are over; `doubt` is half its interval of 95 %. NaN where too little was seen."""

    rate: float = math.nan
    doubt: float = math.nan
    gains: int = 0

    def judge(self, most: float) -> Verdict:
        """`most`: the rate up to which it counts as flat."""
        if self.rate - self.doubt > most:
            return Verdict.GROWS
        return Verdict.FLAT if self.rate + self.doubt <= most else Verdict.UNCLEAR

    def times(self, factor: float) -> "Gain":
        return Gain(self.rate * factor, self.doubt * factor, self.gains)


def gain(series: Iterable[Sequence[Point]]) -> Gain:
    """Of all of them together, each cut into six stretches of as many points; a series of fewer points is left out."""
    steps = [step for each in series if len(each) >= STRETCHES for step in _steps(each)]
    widths = [width for width, _ in steps]
    if len(steps) < STRETCHES - 1 or sum(widths) <= 0:
        return Gain()
    rate = sum(rise for _, rise in steps) / sum(widths)
    left = sum((rise - rate * width) ** 2 for width, rise in steps)
    error = math.sqrt(left / (len(steps) - 1) / len(steps)) / mean(widths)
    return Gain(rate, student(len(steps) - 1) * error, len(steps))


def _steps(points: Sequence[Point]) -> list[Point]:
    """How far from one stretch's middle to the next one's, and what was gained."""
    ordered = sorted(points)
    bounds = [len(ordered) * place // STRETCHES for place in range(STRETCHES + 1)]
    middles = [_middle(ordered[begin:end]) for begin, end in pairwise(bounds)]
    return [(after[0] - before[0], after[1] - before[1]) for before, after in pairwise(middles)]


def _middle(points: Sequence[Point]) -> Point:
    return median(at for at, _ in points), median(value for _, value in points)


def later_halves(lives: Iterable[Sequence[Point]], least_s: float) -> list[Sequence[Point]]:
    """Of those that lasted that long; by time, not by points."""
    long = [life for life in lives if life and life[-1][0] - life[0][0] >= least_s]
    return [[point for point in life if point[0] >= (life[0][0] + life[-1][0]) / 2] for life in long]


def at_equal_age(lives: Iterable[Sequence[Point]]) -> tuple[float, list[Point]]:
    """The greatest age that enough of them reached, and of each its beginning and what it had then. (NaN, nothing)
    where there were too few lives."""
    begun = [life for life in lives if life]
    for age_s in reversed(AGES_S):
        reached = [(life[0][0], value) for life in begun if (value := _value_at(life, age_s)) is not None]
        if len(reached) >= LEAST_LIVES:
            return age_s, reached
    return math.nan, []


def _value_at(life: Sequence[Point], age_s: float) -> float | None:
    return next((value for at, value in life if at - life[0][0] >= age_s), None)


def student(free: int) -> float:
    """Student's t of a two-sided interval of 95 %, by its series in 1/free: within 1 % from 4 degrees of freedom on."""
    z = _NORMAL
    first = (z**3 + z) / 4
    second = (5 * z**5 + 16 * z**3 + 3 * z) / 96
    third = (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384
    return z + first / free + second / free**2 + third / free**3
