"""Predictions -> the arrays that are measured, and the measures of each form of question. Pure."""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ostraka.evaluation.examples import Form, Prediction
from ostraka.evaluation.metrics import Floats, Ints, auc, calibration_error, mean, rank_correlation

YES_FROM = 0.5
"""A noul is decided yes from this P(yes) on."""


@dataclass(frozen=True, slots=True)
class Sample:
    """Examples of one form, a row each.

    `probability` is what calibration judges: of a noul P(yes), else that of the decided option or level; `came_true`
    whether it did. `confidence` is always that of what was decided. `steps`: levels between decided and label;
    `distance`: between the expected level and the label; `placed`, `labelled`: both from 0 (lowest level) to 1.
    `cluster`: the same number for the same state.
    """

    right: Floats
    probability: Floats
    came_true: Floats
    confidence: Floats
    chance: Floats
    steps: Floats
    distance: Floats
    placed: Floats
    labelled: Floats
    cluster: Ints

    def __len__(self) -> int:
        return len(self.right)


Measure = Callable[[Sample, Floats], float]


def _accuracy(sample: Sample, weights: Floats) -> float:
    return mean(sample.right, weights)


def _calibration(sample: Sample, weights: Floats) -> float:
    return calibration_error(sample.probability, sample.came_true, weights)


def _auc(sample: Sample, weights: Floats) -> float:
    return auc(sample.probability, sample.came_true, weights)


def _brier(sample: Sample, weights: Floats) -> float:
    return mean((sample.probability - sample.came_true) ** 2, weights)


def _within_one(sample: Sample, weights: Floats) -> float:
    return mean((sample.steps <= 1).astype(np.float64), weights)


def _distance(sample: Sample, weights: Floats) -> float:
    return mean(sample.distance, weights)


def _rank_correlation(sample: Sample, weights: Floats) -> float:
    return rank_correlation(sample.placed, sample.labelled, weights)


MEASURES: Mapping[Form, Mapping[str, Measure]] = {
    "noul": {"accuracy": _accuracy, "auc": _auc, "ece": _calibration, "brier": _brier},
    "choice": {"accuracy": _accuracy, "ece": _calibration},
    "score": {
        "accuracy": _accuracy,
        "within_one": _within_one,
        "mae": _distance,
        "spearman": _rank_correlation,
        "ece": _calibration,
    },
}
SHARES = frozenset({"accuracy", "within_one"})
"""Counts of hits: their interval is Wilson's. All others are resampled."""


def gather(predictions: Sequence[Prediction]) -> Sample:
    """Predictions of one form."""
    rows = np.array([_row(prediction) for prediction in predictions], np.float64)
    columns: list[Any] = [*rows.T, _clusters(prediction.example.state for prediction in predictions)]
    return Sample(*columns)


def decide(prediction: Prediction) -> int:
    """The place of the most probable option or level, the first of equals; a noul's yes from `YES_FROM` on."""
    p = prediction.probabilities
    return int(p[1] >= YES_FROM) if prediction.example.form == "noul" else p.index(max(p))


def _row(prediction: Prediction) -> tuple[float, ...]:
    """In the order of Sample's fields."""
    example, p = prediction.example, prediction.probabilities
    decided = decide(prediction)
    right = float(decided == example.label)
    judged, came_true = (p[1], float(example.label)) if example.form == "noul" else (p[decided], right)
    total = sum(p)
    expected = sum(level * one for level, one in enumerate(p)) / total if total else 0.0
    top = example.size - 1
    steps, distance = abs(decided - example.label), abs(expected - example.label)
    return (
        right, judged, came_true, p[decided], 1 / example.size, steps, distance, expected / top, example.label / top,
    )  # fmt: skip


def _clusters(states: Iterable[object]) -> Ints:
    numbers: dict[str, int] = {}
    keys = (json.dumps(state, sort_keys=True, ensure_ascii=False) for state in states)
    return np.array([numbers.setdefault(key, len(numbers)) for key in keys], np.intp)
