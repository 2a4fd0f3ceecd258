"""How something grows with time, over several processes of a kind that come and go. Pure."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

Point = tuple[float, float]
"""Seconds, and what was measured then."""


@dataclass(frozen=True, slots=True)
class Trend:
    """`per_s` with its standard error; NaN where too little was seen. `mean` and `most` of all points."""

    per_s: float
    error_per_s: float
    mean: float
    most: float
    points: int


def fit(series: Iterable[Sequence[Point]], settle_s: float) -> Trend:
    """One slope for all, each with a level of its own. What a process does in its first `settle_s` is left out: it
    fills its caches then."""
    kept = [[(at, value) for at, value in each if at - each[0][0] >= settle_s] for each in series if each]
    kept = [each for each in kept if len(each) > 1]
    points = [point for each in kept for point in each]
    centred = [centre(each) for each in kept]
    square = sum(at * at for each in centred for at, _ in each)
    if not square:
        return Trend(math.nan, math.nan, math.nan, math.nan, 0)
    slope = sum(at * value for each in centred for at, value in each) / square
    left = sum((value - slope * at) ** 2 for each in centred for at, value in each)
    free = len(points) - len(kept) - 1
    values = [value for _, value in points]
    error = math.sqrt(left / free / square) if free > 0 else math.nan
    return Trend(slope, error, sum(values) / len(values), max(values), len(points))


def centre(points: Sequence[Point]) -> list[Point]:
    at_mean = sum(at for at, _ in points) / len(points)
    mean = sum(value for _, value in points) / len(points)
    return [(at - at_mean, value - mean) for at, value in points]
