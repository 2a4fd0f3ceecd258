import json

import pytest

from ostraka.answerers import Outcome
from ostraka.evaluation.examples import Prediction, parse_example
from training.diagnostics import describe_orders, length_group, negation_group, regroup, turn, views
from training.minilm_baseline import candidates

CHOICE = {
    "state": "s",
    "question": "Which?",
    "type": "choice",
    "label": 0,
    "options": {"a": "first", "b": None, "c": None},
}


def example(**changes):
    fields = {"state": "s", "question": "Is it so?", "type": "noul", "label": True} | changes
    return parse_example(json.dumps(fields).encode(), "f:1", "kind")


@pytest.mark.parametrize(
    ("question", "group"),
    [("Is it urgent?", "plain"), ("Is it not urgent?", "negated"), ("It isn't urgent.", "negated"), ("Is a part missing?", "negated"),
     ("Is the knot tight?", "plain"), ("Is it FALSE that it rains?", "negated")],
)  # fmt: skip
def test_negated_questions(question, group):
    assert negation_group(example(question=question)) == group


@pytest.mark.parametrize(
    ("words", "group"),
    [(1, "001-015 words"), (15, "001-015 words"), (16, "016-040 words"), (300, "251 words and more")],
)
def test_lengths(words, group):
    assert length_group(example(state="word " * words)) == group


def test_a_view_keeps_what_has_a_place_in_it():
    told = [Prediction(example(kind="missing"), (0.5, 0.5)), Prediction(example(kind="tone"), (0.5, 0.5))]
    assert [one.example.group for one in regroup(told, views("missing")["missing facts"])] == ["yes is right"]
    assert len(regroup(told, views("missing")["negated questions"])) == 2


@pytest.mark.parametrize("steps", range(4))
def test_a_turned_choice_has_the_same_right_option(steps):
    turned = turn(example(**CHOICE), steps)
    assert turned.options[turned.label] == "a"
    assert dict(turned.criteria) == CHOICE["options"]
    assert list(turned.criteria) == list(turned.options)
    assert sorted(turned.options) == ["a", "b", "c"]


def test_orders_tell_a_model_that_takes_the_first_option_from_one_that_reads():
    class First:
        def answer(self, bodies):
            for body in bodies:
                names = list(json.loads(body)["questions"]["q"]["criteria"])
                told = {name: 0.8 if name == self.pick(names) else 0.1 for name in names}
                yield Outcome(json.dumps({"answers": {"q": {"probabilities": told}}}).encode(), is_answer=True)

        def pick(self, names):
            return names[0]

    class Reader(First):
        def pick(self, _):
            return "a"

    before = [Prediction(example(**CHOICE), (0.8, 0.1, 0.1))]
    assert "every time in 0.000" in describe_orders(before, First())
    assert "every time in 1.000; a probability moves by up to 0.000" in describe_orders(before, Reader())


def test_the_text_of_an_option_is_question_name_and_description():
    assert candidates(example(**CHOICE)) == ["Which? a: first", "Which? b", "Which? c"]
    assert candidates(example()) == ["Is it so?"]
    assert candidates(example(type="score", label=0, levels=["low", "high"], question="How?")) == [
        "How? low",
        "How? high",
    ]
