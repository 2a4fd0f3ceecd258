"""Measures against values known by hand, and against slow computations of their definitions."""

from math import isnan, nan

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ostraka.evaluation.metrics import (
    BINS,
    auc,
    calibration_error,
    coverage,
    interval,
    mean,
    rank_correlation,
    reliability,
    resamples,
    thresholds,
    wilson,
)

PROBABILITY = st.floats(0, 1) | st.sampled_from([0.0, 0.1, 0.3, 0.5, 0.7, 1.0])
ROWS = st.lists(st.tuples(PROBABILITY, st.booleans(), st.integers(0, 3)), min_size=1, max_size=40)


def columns(rows):
    return tuple(np.array(column, np.float64) for column in zip(*rows, strict=True))


def array(*values):
    return np.array(values, np.float64)


def ones(count):
    return np.ones(count)


def test_auc_of_a_perfect_a_reversed_and_a_mixed_order():
    labels = array(0, 0, 1, 1)
    assert auc(array(0.1, 0.2, 0.8, 0.9), labels, ones(4)) == 1
    assert auc(array(0.9, 0.8, 0.2, 0.1), labels, ones(4)) == 0
    assert auc(array(0.1, 0.4, 0.35, 0.8), labels, ones(4)) == 0.75
    assert auc(array(0.5, 0.5, 0.5, 0.5), labels, ones(4)) == 0.5


def test_auc_needs_both_labels():
    assert isnan(auc(array(0.1, 0.2), array(1, 1), ones(2)))


@given(ROWS)
def test_auc_is_the_share_of_pairs_in_order(rows):
    scores, labels, weights = columns(rows)
    won = total = 0.0
    for score, label, weight in zip(scores, labels, weights, strict=True):
        for other, other_label, other_weight in zip(scores, labels, weights, strict=True):
            if label and not other_label:
                pair = weight * other_weight
                total += pair
                won += pair * (1.0 if score > other else 0.5 if score == other else 0.0)
    assert auc(scores, labels, weights) == pytest.approx(won / total if total else nan, nan_ok=True)


@given(ROWS)
def test_auc_turns_round_with_the_labels(rows):
    scores, labels, weights = columns(rows)
    turned = auc(scores, 1 - labels, weights)
    assert auc(scores, labels, weights) == pytest.approx(1 - turned, nan_ok=True)


@given(ROWS)
def test_weights_count_like_repeated_examples(rows):
    scores, labels, weights = columns(rows)
    times = weights.astype(int)
    repeated = np.repeat(scores, times), np.repeat(labels, times)
    flat = ones(times.sum())
    for measure in (auc, calibration_error, rank_correlation):
        assert measure(scores, labels, weights) == pytest.approx(measure(*repeated, flat), nan_ok=True, abs=1e-9)
    assert mean(scores, weights) == pytest.approx(mean(repeated[0], flat), nan_ok=True)


def test_calibration_error_of_known_sets():
    assert calibration_error(array(0.25, 0.25, 0.25, 0.25), array(1, 0, 0, 0), ones(4)) == 0
    assert calibration_error(array(1, 1), array(0, 0), ones(2)) == 1
    # Two bins, half of the examples each: |0.95 - 0.5| and |0.05 - 0|.
    assert calibration_error(array(0.95, 0.95, 0.05, 0.05), array(1, 0, 0, 0), ones(4)) == pytest.approx(0.25)


@given(ROWS)
def test_calibration_error_is_the_mean_gap_of_its_bins(rows):
    probability, labels, weights = columns(rows)
    gap = 0.0
    for number in range(BINS):
        inside = [i for i, p in enumerate(probability) if min(int(p * BINS), BINS - 1) == number and weights[i]]
        mass = sum(weights[i] for i in inside)
        if mass:
            said = sum(weights[i] * probability[i] for i in inside) / mass
            came = sum(weights[i] * labels[i] for i in inside) / mass
            gap += mass * abs(said - came)
    total = weights.sum()
    assert calibration_error(probability, labels, weights) == pytest.approx(gap / total if total else nan, nan_ok=True)


@given(ROWS)
def test_reliability_bins_make_up_the_calibration_error(rows):
    probability, labels, _ = columns(rows)
    bins = reliability(probability, labels)
    assert len(bins) == BINS
    assert sum(one.count for one in bins) == len(rows)
    filled = [one for one in bins if one.count]
    assert all(one.low - 1e-9 <= one.mean_probability <= one.high + 1e-9 for one in filled)
    gap = sum(one.count * abs(one.mean_probability - one.share_true) for one in filled) / len(rows)
    assert calibration_error(probability, labels, ones(len(rows))) == pytest.approx(gap)


def test_one_is_in_the_last_bin():
    assert [one.count for one in reliability(array(0.0, 0.1, 0.99, 1.0), array(0, 0, 1, 1))] == [1, 1, *[0] * 7, 2]


def test_rank_correlation_of_known_sets():
    assert rank_correlation(array(1, 2, 3, 9), array(2, 4, 6, 7), ones(4)) == pytest.approx(1)
    assert rank_correlation(array(1, 2, 3), array(3, 2, 1), ones(3)) == pytest.approx(-1)
    # 1 - 6 sum(d^2) / (n (n^2 - 1)), without ties: differences of rank 1, 1, 0, 1, 1.
    assert rank_correlation(array(1, 2, 3, 4, 5), array(2, 1, 3, 5, 4), ones(5)) == pytest.approx(1 - 24 / 120)
    assert isnan(rank_correlation(array(1, 1, 1), array(1, 2, 3), ones(3)))


def test_wilson_interval_of_known_shares():
    assert wilson(5, 10) == pytest.approx((0.2366, 0.7634), abs=1e-4)
    assert wilson(0, 10) == pytest.approx((0.0, 0.2775), abs=1e-4)
    assert wilson(10, 10) == pytest.approx((0.7225, 1.0), abs=1e-4)
    assert all(map(isnan, wilson(0, 0)))


@given(st.integers(1, 500).flatmap(lambda count: st.tuples(st.integers(0, count), st.just(count))))
def test_wilson_interval_holds_the_share(counts):
    successes, count = counts
    low, high = wilson(successes, count)
    assert 0 <= low <= successes / count <= high <= 1 or successes in {0, count}


def test_threshold_table():
    rows = thresholds(array(0.9, 0.6, 0.4, 0.1), array(1, 0, 1, 0), [0.5, 0.95])
    assert (rows[0].yes_share, rows[0].precision, rows[0].recall, rows[0].accuracy) == (0.5, 0.5, 0.5, 0.5)
    assert (rows[1].yes_share, rows[1].recall, rows[1].accuracy) == (0, 0, 0.5)
    assert isnan(rows[1].precision)


def test_coverage_table():
    everything, sure = coverage(array(0.9, 0.6, 0.8), array(1, 0, 1), [0.0, 0.7])
    assert (everything.share, everything.accuracy) == (1, pytest.approx(2 / 3))
    assert (sure.share, sure.accuracy) == (pytest.approx(2 / 3), 1)


def test_resamples_draw_whole_clusters():
    clusters = np.array([4, 4, 4, 9, 7, 7])
    sets = list(resamples(clusters, draws=50, seed=3))
    assert len(sets) == 50
    for weights in sets:
        assert weights[0] == weights[1] == weights[2]
        assert weights[4] == weights[5]
        assert weights[0] + weights[3] + weights[4] == 3
    assert len({tuple(weights) for weights in sets}) > 1
    assert [list(one) for one in resamples(clusters, 5)] == [list(one) for one in resamples(clusters, 5)]


def test_interval_leaves_out_what_could_not_be_measured():
    assert interval([nan, *map(float, range(101)), nan]) == (2.5, 97.5)
    assert all(map(isnan, interval([nan, nan, 1.0])))


def test_bootstrap_interval_of_a_mean_is_about_the_normal_one():
    values = np.random.default_rng(1).normal(0, 1, 400)
    low, high = interval([mean(values, weights) for weights in resamples(np.arange(400), 400)])
    half = 1.96 * values.std() / 20
    assert (high - low) / 2 == pytest.approx(half, rel=0.15)
    assert low < values.mean() < high
