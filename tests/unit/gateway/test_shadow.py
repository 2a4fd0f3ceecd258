import json

import pytest

from ostraka_gateway.shadow import Answered, Figures, compare


def body(answers):
    return json.dumps({"model": "m", "answers": answers}).encode()


def old(answers, seconds=1.0):
    return Answered(200, body(answers), seconds)


NOUL = {"q": {"type": "noul", "noul": 0.4}}
CHOICE = {"q": {"type": "choice", "choice": "a", "probabilities": {"a": 0.75, "b": 0.25}, "confidence": 0.5}}
SCORE = {"q": {"type": "score", "score": 0.25, "probabilities": {"0": 0.75, "1": 0.25}, "legend": {}, "confidence": 1}}
LISTED = [
    {"type": "predicate", "name": "p", "probability": 0.4},
    {"type": "choice", "choice": "a", "probabilities": [{"value": "a", "probability": 1.0}]},
]


@pytest.mark.parametrize("answers", [NOUL, CHOICE, SCORE, LISTED])
def test_the_same_answers_differ_in_nothing(answers):
    found = compare(old(answers, 2.0), Answered(200, body(answers), 3.0))
    assert (found.requests, found.answers, found.flips, found.errors) == (1, len(answers), 0, 0)
    assert (found.largest_difference, found.latency_ratio) == (0.0, 1.5)


@pytest.mark.parametrize(
    ("before", "after", "largest", "mean", "flips"),
    [
        (NOUL, {"q": {"type": "noul", "noul": 0.3}}, 0.1, 0.1, 0),
        (NOUL, {"q": {"type": "noul", "noul": 0.5}}, 0.1, 0.1, 1),
        (CHOICE, {"q": CHOICE["q"] | {"choice": "b", "probabilities": {"a": 0.25, "b": 0.75}}}, 0.5, 0.5, 1),
        (CHOICE, {"q": CHOICE["q"] | {"probabilities": {"a": 0.75, "b": 0.15}}}, 0.1, 0.05, 0),
        (SCORE, {"q": SCORE["q"] | {"score": 0.75, "probabilities": {"0": 0.25, "1": 0.75}}}, 0.5, 0.5, 1),
        (LISTED, [LISTED[0] | {"probability": 0.6}, LISTED[1]], 0.2, 0.1, 1),
    ],
)
def test_what_differs_is_measured(before, after, largest, mean, flips):
    found = compare(old(before), Answered(200, body(after), 1.0))
    assert found.largest_difference == pytest.approx(largest)
    assert found.mean_difference == pytest.approx(mean)
    assert found.flips == flips


@pytest.mark.parametrize(
    "new",
    [
        Answered(500, b"{}", 1.0),
        Answered(400, body(NOUL), 1.0),
        Answered(0, b"", 1.0),
        Answered(200, b"not JSON", 1.0),
        Answered(200, b"[]", 1.0),
        Answered(200, body({}), 1.0),
        Answered(200, body(CHOICE), 1.0),
    ],
)
def test_no_answer_is_an_error(new):
    assert compare(old(NOUL), new) == Figures(errors=1)


@pytest.mark.parametrize("status", [429, 503, 504, 529])
def test_a_busy_model_is_none(status):
    assert compare(old(NOUL), Answered(status, b"", 1.0)) == Figures(unanswered=1)


def test_figures_of_several_gateways_add_up():
    both = Figures(requests=1, largest_difference=0.5, old_s=1.0) + Figures(requests=2, largest_difference=0.25)
    assert (both.requests, both.largest_difference, both.old_s) == (3, 0.5, 1.0)
    assert both.summary()["requests"] == 3
