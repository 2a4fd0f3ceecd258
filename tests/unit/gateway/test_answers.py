import json
import math
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ostraka_gateway.answers import answer_request, encode_response, weigh_levels, weigh_options
from ostraka_gateway.schemas import SystemOneRequest
from ostraka_shared.errors import EngineFailed

CASES = json.loads(Path(__file__).with_name("jevos_unit_cases.json").read_text(encoding="utf-8"))
PROBABILITY = st.floats(0.0, 1.0)


def ask(**questions):
    return SystemOneRequest(state="s", questions=questions)


NOUL = {"type": "noul"}


def choice(*names):
    return {"type": "choice", "criteria": dict.fromkeys(names)}


def score(*levels):
    return {"type": "score", "criteria": list(levels)}


@pytest.mark.parametrize("case", CASES["choice_from_p_yes"])
def test_a_choice_is_exact(case):
    assert weigh_options(case["p_yes"]) == (case["best"], case["probabilities"], case["confidence"])


@pytest.mark.parametrize("case", CASES["score_from_p_at_least"])
def test_a_score_is_exact(case):
    assert weigh_levels(case["p_at_least"]) == (case["score"], case["probabilities"], case["confidence"])


def test_sums_run_left_to_right_on_every_python():
    tenths = [0.1] * 10
    total = 0.0
    for p in tenths:
        total += p
    assert total != math.fsum(tenths)
    assert weigh_options(tenths)[1] == [0.1 / total] * 10


@pytest.mark.parametrize("p", [0.0, 0.3, 1.0, 5e-324])
def test_a_single_option_is_certain(p):
    assert weigh_options([p]) == (0, [1.0], 1.0)


def test_a_single_level_is_certain_and_asks_nothing():
    answers = answer_request(ask(s=score("only")), [])
    assert answers["s"] == {
        "type": "score",
        "score": 0.0,
        "legend": {"0": "only"},
        "probabilities": {"0": 1.0},
        "confidence": 1.0,
    }


def test_long_rises_are_pooled_back_to_the_left():
    assert weigh_levels([0.5, 0.25, 0.75, 0.0])[1] == [0.5, 0.0, 0.0, 0.5, 0.0]


@given(st.lists(PROBABILITY, min_size=1, max_size=255))
def test_a_choice_is_a_distribution_with_its_peak_chosen(p_yes):
    best, probabilities, confidence = weigh_options(p_yes)
    assert math.isclose(math.fsum(probabilities), 1.0, abs_tol=1e-12)
    assert best == probabilities.index(max(probabilities))
    assert 0.0 <= confidence <= 1.0


@given(st.lists(PROBABILITY, max_size=9))
def test_a_score_is_the_expectation_of_a_distribution(p_at_least):
    value, probabilities, confidence = weigh_levels(p_at_least)
    assert len(probabilities) == len(p_at_least) + 1
    assert min(probabilities) >= 0.0
    assert math.isclose(math.fsum(probabilities), 1.0, abs_tol=1e-12)
    assert math.isclose(value, math.fsum(i * p for i, p in enumerate(probabilities)), abs_tol=1e-12)
    assert 0.0 <= value <= len(p_at_least)
    assert 0.0 <= confidence <= 1.0


@given(st.lists(PROBABILITY, max_size=9).map(lambda values: sorted(values, reverse=True)))
def test_a_falling_sequence_is_left_alone(p_at_least):
    steps = [1.0, *p_at_least, 0.0]
    assert weigh_levels(p_at_least)[1] == [here - above for here, above in pairwise(steps)]


QUESTIONS = [NOUL, choice("a", "b", "c"), score("lo", "mid", "hi"), score("only"), choice("alone")]


@given(
    st.permutations(range(len(QUESTIONS))),
    st.lists(st.text(min_size=1, max_size=5).filter(str.strip), min_size=5, max_size=5, unique=True),
    st.lists(st.lists(PROBABILITY, min_size=3, max_size=3), min_size=5, max_size=5),
)
def test_an_answer_depends_on_its_own_prompts_alone(order, ids, p_yes):
    """Not on its id, its order, or the questions beside it."""
    alone = [ask(q=question) for question in QUESTIONS]
    own = [p_yes[i][: request.prompt_count] for i, request in enumerate(alone)]
    together = ask(**{ids[i]: QUESTIONS[i] for i in order})
    answers = answer_request(together, [p for i in order for p in own[i]])
    assert list(answers) == [ids[i] for i in order]
    for i, request in enumerate(alone):
        assert answers[ids[i]] == answer_request(request, own[i])["q"]


def test_the_body_is_compact_utf8_in_the_order_of_the_api():
    questions = {"질문": NOUL, "c": choice("한 \u00e9", "b"), "s": score(" lo ", {"n": [1, 2.5]}, ["x"])}
    body = encode_response(ask(**questions), "ostraka-1", [1e-05, 0.75, 0.25, 1.0, 0.5], 27)
    assert body.decode() == (
        '{"model":"ostraka-1","answers":{'
        '"질문":{"type":"noul","noul":1e-05},'
        '"c":{"type":"choice","choice":"한 \u00e9","probabilities":{"한 \u00e9":0.75,"b":0.25},"confidence":0.5},'
        '"s":{"type":"score","score":1.5,"legend":{"0":" lo ","1":{"n":[1,2.5]},"2":["x"]},'
        '"probabilities":{"0":0.0,"1":0.5,"2":0.5},"confidence":0.25}},'
        '"usage":{"input_tokens":27,"output_tokens":0}}'
    )


def test_probabilities_are_written_as_floats():
    body = encode_response(ask(a=NOUL, b=NOUL), "m", [0.0, 1.0], 1)
    assert b'"noul":0.0}' in body
    assert b'"noul":1.0}' in body


@pytest.mark.parametrize("p_yes", [[], [0.5], [0.5, 0.5, 0.5]])
def test_a_partial_or_a_longer_answer_is_refused(p_yes):
    with pytest.raises(EngineFailed, match="of 2 prompts"):
        answer_request(ask(c=choice("a", "b")), p_yes)


@pytest.mark.parametrize("p", [math.nan, math.inf, -0.1, 1.0000001])
def test_what_is_no_probability_is_refused(p):
    with pytest.raises(EngineFailed, match="between 0 and 1"):
        encode_response(ask(a=NOUL), "m", [p], 1)
