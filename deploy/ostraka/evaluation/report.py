"""Predictions -> the report: a JSON-ready dict of measures with their intervals, per form and per group. Pure."""

import math
import zlib
from collections.abc import Callable, Iterable, Sequence
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
INTERVALS = "95 %: Wilson for accuracy and within_one; else (and for means of groups) bootstrap over states"

Row = dict[str, object]
Report = dict[str, object]
Draws = dict[str, list[float]]
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
            rows = [_difference(form, name, group) for name, group in grouped.items()]
            forms[form] = {"groups": _with_mean(form, rows)}
    return {"intervals": "95 %: paired bootstrap over states, 500 draws, percentiles", "forms": forms}


def _form(form: Form, predictions: Sequence[Prediction]) -> Report:
    whole = gather(predictions)
    grouped = _grouped(predictions, lambda one: one.example.group)
    rows = _with_mean(form, [_measured(form, name, gather(group)) for name, group in grouped.items()])
    told: Report = {
        "groups": rows,
        "reliability": [_plain(asdict(one)) for one in reliability(whole.probability, whole.came_true)],
        "coverage": [_plain(asdict(row)) for row in coverage(whole.confidence, whole.right, CONFIDENCES)],
    }
    if form == "noul":
        rows_at = thresholds(whole.probability, whole.came_true, THRESHOLDS)
        told["thresholds"] = [_plain(asdict(row)) for row in rows_at]
    return told


def _measured(form: Form, name: str, sample: Sample) -> tuple[Row, Draws]:
    row: Row = {"group": name, "examples": len(sample), "chance": float(sample.chance.mean())}
    if form == "noul":
        row["yes_share"] = float(sample.came_true.mean())
    flat = np.ones(len(sample))
    drawn = _draw(form, name, sample, lambda one, weights: one(sample, weights))
    for key, one in MEASURES[form].items():
        value = one(sample, flat)
        ends = wilson(value * len(sample), len(sample)) if key in SHARES else interval(drawn[key])
        row[key] = _cell(value, ends)
    return row, drawn


def _difference(form: Form, name: str, pairs: Sequence[Pair]) -> tuple[Row, Draws]:
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
    drawn = _draw(form, name, first, change)
    for key, one in MEASURES[form].items():
        row[key] = _cell(change(one, np.ones(len(pairs))), interval(drawn[key]))
    return row, drawn


def _draw(form: Form, name: str, sample: Sample, value: Callable[[Measure, np.ndarray], float]) -> Draws:
    """Each measure of each resampled set. The seed is the group's own: one group's luck is not another's."""
    drawn: Draws = {key: [] for key in MEASURES[form]}
    for weights in resamples(sample.cluster, seed=zlib.crc32(name.encode())):
        for key, one in MEASURES[form].items():
            drawn[key].append(value(one, weights))
    return drawn


def _with_mean(form: Form, told: Sequence[tuple[Row, Draws]]) -> list[Row]:
    """All, the groups, and where there are some their mean: each counts alike, whatever its size."""
    rows, groups = [row for row, _ in told], told[1:]
    if not groups:
        return rows
    mean_row: Row = {"group": MEAN, "examples": rows[0]["examples"]}
    if "chance" in rows[0]:
        mean_row["chance"] = fmean(float(str(row["chance"])) for row in rows[1:])
    for key in MEASURES[form]:
        values = [_mean_of_known(draws) for draws in zip(*(drawn[key] for _, drawn in groups), strict=True)]
        mean_row[key] = _cell(_mean_of_known([_value(row[key]) for row in rows[1:]]), interval(values))
    return [*rows, mean_row]


def _mean_of_known(values: Iterable[float]) -> float:
    """A group that a measure cannot be had of is left out."""
    known = [value for value in values if not math.isnan(value)]
    return fmean(known) if known else math.nan


def _value(cell: object) -> float:
    told = cell["value"] if isinstance(cell, dict) else None
    return math.nan if told is None else float(told)


def _cell(value: float, ends: tuple[float, float]) -> Row:
    return _plain({"value": value, "low": ends[0], "high": ends[1]})


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
