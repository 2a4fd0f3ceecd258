"""Measures of decisions, over arrays with one row an example. Pure: no model, no file, no text.

`weights` are how often each example counts: that is how a resampled set is measured without copying it. What cannot be
measured (no example, or labels of one kind only) is NaN.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import sqrt

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.intp]

BINS = 10
DRAWS = 500
"""Resampled sets for one interval: its ends are then good to about a tenth of its width."""
Z95 = 1.959963984540054


@dataclass(frozen=True, slots=True)
class Bin:
    """Probabilities from `low` to below `high` (the last bin has 1 too): how many, their mean, how many came true."""

    low: float
    high: float
    count: int
    mean_probability: float
    share_true: float


@dataclass(frozen=True, slots=True)
class ThresholdRow:
    """Saying yes from `threshold` on. `precision` is NaN where nothing reaches it."""

    threshold: float
    yes_share: float
    precision: float
    recall: float
    accuracy: float


@dataclass(frozen=True, slots=True)
class CoverageRow:
    """Deciding only where the decided answer has at least `confidence`: the share decided, and how much of it right."""

    confidence: float
    share: float
    accuracy: float


def mean(values: Floats, weights: Floats) -> float:
    total = float(weights.sum())
    return float(values @ weights) / total if total else float("nan")


def auc(scores: Floats, is_true: Floats, weights: Floats) -> float:
    """The probability that a true example scores above a false one, where a tie counts half."""
    _, place = np.unique(scores, return_inverse=True)
    true = np.bincount(place, weights * is_true)
    false = np.bincount(place, weights * (1 - is_true))
    pairs = float(true.sum() * false.sum())
    below = np.cumsum(false) - false
    return float(true @ (below + false / 2)) / pairs if pairs else float("nan")


def calibration_error(probability: Floats, is_true: Floats, weights: Floats) -> float:
    """Expected calibration error over `BINS` bins of equal width. Small sets show more than there is: noise adds up."""
    total = float(weights.sum())
    if not total:
        return float("nan")
    place = _bin_of(probability)
    said = np.bincount(place, weights * probability, BINS)
    came = np.bincount(place, weights * is_true, BINS)
    return float(np.abs(said - came).sum()) / total


def reliability(probability: Floats, is_true: Floats) -> list[Bin]:
    """All `BINS` bins, lowest first; an empty one has NaN means."""
    place = _bin_of(probability)
    counts = np.bincount(place, minlength=BINS)
    said = np.bincount(place, probability, BINS)
    came = np.bincount(place, is_true, BINS)
    return [Bin(i / BINS, (i + 1) / BINS, int(n), _ratio(said[i], n), _ratio(came[i], n)) for i, n in enumerate(counts)]


def rank_correlation(left: Floats, right: Floats, weights: Floats) -> float:
    """Spearman's: ties share their mean rank."""
    ranks = _ranks(left, weights), _ranks(right, weights)
    centred = [rank - mean(rank, weights) for rank in ranks]
    spread = sqrt(float((weights * centred[0] ** 2).sum()) * float((weights * centred[1] ** 2).sum()))
    return float((weights * centred[0] * centred[1]).sum()) / spread if spread else float("nan")


def thresholds(p_yes: Floats, is_yes: Floats, at: Sequence[float]) -> list[ThresholdRow]:
    rows = []
    for threshold in at:
        said = p_yes >= threshold
        hits = float(is_yes[said].sum())
        right = float(np.where(said, is_yes, 1 - is_yes).sum())
        precision, recall = _ratio(hits, float(said.sum())), _ratio(hits, float(is_yes.sum()))
        rows.append(
            ThresholdRow(threshold, _ratio(said.sum(), len(p_yes)), precision, recall, _ratio(right, len(p_yes)))
        )
    return rows


def coverage(confidence: Floats, is_right: Floats, at: Sequence[float]) -> list[CoverageRow]:
    rows = []
    for least in at:
        decided = confidence >= least
        share = _ratio(float(decided.sum()), len(confidence))
        rows.append(CoverageRow(least, share, _ratio(float(is_right[decided].sum()), float(decided.sum()))))
    return rows


def wilson(successes: float, count: float) -> tuple[float, float]:
    """95 % interval of a share, honest at 0 and 1 too. Takes the examples as independent."""
    if not count:
        return float("nan"), float("nan")
    share, spread = successes / count, Z95**2 / count
    centre = (share + spread / 2) / (1 + spread)
    half = Z95 * sqrt(share * (1 - share) / count + spread / (4 * count)) / (1 + spread)
    return max(0.0, centre - half), min(1.0, centre + half)


def resamples(clusters: Ints, draws: int = DRAWS, seed: int = 0) -> Iterator[Floats]:
    """Weights of bootstrap sets: whole clusters drawn with replacement, as questions on one state err together."""
    _, place = np.unique(clusters, return_inverse=True)
    count = int(place.max()) + 1 if len(place) else 0
    rng = np.random.default_rng(seed)
    for _ in range(draws):
        yield np.bincount(rng.integers(count, size=count), minlength=count).astype(np.float64)[place]


def interval(values: Sequence[float]) -> tuple[float, float]:
    """95 % percentile interval. Draws that could not be measured are left out; NaN where those are most."""
    known = [value for value in values if not np.isnan(value)]
    if 2 * len(known) <= len(values):
        return float("nan"), float("nan")
    low, high = np.percentile(known, [2.5, 97.5])
    return float(low), float(high)


def _bin_of(probability: Floats) -> Ints:
    return np.minimum((probability * BINS).astype(np.intp), BINS - 1)


def _ranks(values: Floats, weights: Floats) -> Floats:
    _, place = np.unique(values, return_inverse=True)
    mass = np.bincount(place, weights)
    ranks: Floats = (np.cumsum(mass) - mass / 2)[place]
    return ranks


def _ratio(part: float, whole: float) -> float:
    return float(part) / float(whole) if whole else float("nan")
