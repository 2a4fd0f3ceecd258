"""Predictions -> the report: a JSON-ready dict of measures with their intervals, per form and per group. Pure."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from statistics import fmean
from typing import TypeVar

import numpy as np

from ostraka.evaluation.examples import FORMS, Form, Prediction
from ostraka.evaluation.metrics import coverage, interval, reliability, resamples, thresholds, wilson
from ostraka.evaluation.samples import MEASURES, SHARES, Measure, Sample, decide, gather

ALL = "all"
MEAN = "mean of groups"
THRESHOLDS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
CONFIDENCES = (0.0, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95)
INTERVALS = "95 %: Wilson for accuracy and within_one; for the others bootstrap over states, 500 draws, percentiles"

Row = dict[str, object]
Report = dict[str, object]
Pair = tuple[Prediction, Prediction]
One = TypeVar("One")


def build_report(predictions: Sequence[Prediction]) -> Report:
    """`forms`: for each form asked, `groups` (`all` first), `reliability`, `coverage`; for noul `thresholds` too."""
    return {"intervals": INTERVALS, "forms": {form: _form(form, own) for form, own in _by_form(predictions).items()}}


def build_comparison(pairs: Sequence[Pair]) -> Report:
    """Each example under the first and under the second answerer. Differences are second minus first."""
    forms: Report = {}
    for form in FORMS:
        own = [pair for pair in pairs if pair[0].example.form == form]
        if own:
            grouped = _grouped(own, lambda pair: pair[0].example.group)
            forms[form] = {"groups": [_difference(form, name, group) for name, group in grouped.items()]}
    return {"intervals": "95 %: paired bootstrap over states, 500 draws, percentiles", "forms": forms}


def _form(form: Form, predictions: Sequence[Prediction]) -> Report:
    whole = gather(predictions)
    grouped = _grouped(predictions, lambda one: one.example.group)
    rows = [_measured(form, name, gather(group)) for name, group in grouped.items()]
    if len(rows) > 2:
        rows.append(_mean_row(form, rows[1:]))
    told: Report = {
        "groups": rows,
        "reliability": [_plain(asdict(one)) for one in reliability(whole.probability, whole.came_true)],
        "coverage": [_plain(asdict(row)) for row in coverage(whole.confidence, whole.right, CONFIDENCES)],
    }
    if form == "noul":
        rows_at = thresholds(whole.probability, whole.came_true, THRESHOLDS)
        told["thresholds"] = [_plain(asdict(row)) for row in rows_at]
    return told


def _measured(form: Form, name: str, sample: Sample) -> Row:
    row: Row = {"group": name, "examples": len(sample), "chance": float(sample.chance.mean())}
    if form == "noul":
        row["yes_share"] = float(sample.came_true.mean())
    flat = np.ones(len(sample))
    resampled = {key: one for key, one in MEASURES[form].items() if key not in SHARES}
    ends = _resampled(resampled, lambda one, weights: one(sample, weights), sample)
    for key, one in MEASURES[form].items():
        value = one(sample, flat)
        low, high = ends[key] if key in ends else wilson(value * len(sample), len(sample))
        row[key] = _plain({"value": value, "low": low, "high": high})
    return row


def _difference(form: Form, name: str, pairs: Sequence[Pair]) -> Row:
    first, second = gather([one for one, _ in pairs]), gather([other for _, other in pairs])

    def change(one: Measure, weights: np.ndarray) -> float:
        return one(second, weights) - one(first, weights)

    moved = [max(abs(a - b) for a, b in zip(one.probabilities, two.probabilities, strict=True)) for one, two in pairs]
    row: Row = {
        "group": name,
        "examples": len(pairs),
        "same_decision": fmean(decide(one) == decide(two) for one, two in pairs),
        "mean_move": fmean(moved),
        "largest_move": max(moved),
    }
    ends = _resampled(MEASURES[form], change, first)
    for key, one in MEASURES[form].items():
        low, high = ends[key]
        row[key] = _plain({"value": change(one, np.ones(len(pairs))), "low": low, "high": high})
    return row


def _resampled(
    measures: Mapping[str, Measure], value: Callable[[Measure, np.ndarray], float], sample: Sample
) -> dict[str, tuple[float, float]]:
    drawn: dict[str, list[float]] = {key: [] for key in measures}
    for weights in resamples(sample.cluster):
        for key, one in measures.items():
            drawn[key].append(value(one, weights))
    return {key: interval(values) for key, values in drawn.items()}


def _mean_row(form: Form, rows: Sequence[Row]) -> Row:
    """Each group counts alike, whatever its size. A group that a measure cannot be had of is left out of its mean."""
    row: Row = {"group": MEAN, "examples": sum(int(str(one["examples"])) for one in rows)}
    for key in ("chance", *MEASURES[form]):
        values = [_value(one[key]) for one in rows]
        known = [value for value in values if value is not None]
        mean_value = fmean(known) if known else None
        row[key] = mean_value if key == "chance" else {"value": mean_value, "low": None, "high": None}
    return row


def _value(cell: object) -> float | None:
    told = cell["value"] if isinstance(cell, dict) else cell
    return None if told is None else float(told)  # type: ignore[arg-type]


def _by_form(predictions: Sequence[Prediction]) -> dict[Form, list[Prediction]]:
    told = {form: [one for one in predictions if one.example.form == form] for form in FORMS}
    return {form: own for form, own in told.items() if own}


def _grouped(ones: Iterable[One], name: Callable[[One], str]) -> dict[str, list[One]]:
    """All first, then each group by name where there are two or more."""
    everything = list(ones)
    groups: dict[str, list[One]] = {}
    for one in everything:
        groups.setdefault(name(one), []).append(one)
    return {ALL: everything} | (dict(sorted(groups.items())) if len(groups) > 1 else {})


def _plain(row: Row) -> Row:
    """JSON has no NaN."""
    return {key: None if isinstance(value, float) and math.isnan(value) else value for key, value in row.items()}
