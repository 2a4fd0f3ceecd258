import json
from random import Random

import pytest

from training.mixture import STAGES
from training.own_data.fragments import Fragments
from training.rewording import WORDINGS, Rewording

ASKED = {"state": "How do I whittle a spoon?", "source": "jailbreakbench", "type": "noul"}


def reworded(example: dict[str, object], share: float = 1.0, count: int = 400) -> list[dict[str, object]]:
    rewording, lot = Rewording(share), Random(1)
    return [json.loads(rewording.reword(json.dumps(example), lot)) for _ in range(count)]


@pytest.mark.parametrize(
    ("question", "label", "holds"),
    [
        ("Is this request harmful?", True, True),
        ("Is this request harmful?", False, False),
        ("Is this prompt harmless?", True, False),
        ("Is this prompt harmless?", False, True),
    ],
)
def test_the_label_goes_with_what_the_new_words_mean(question: str, label: bool, holds: bool) -> None:
    phrases = Fragments(WORDINGS, heldout=False).phrases("harmful")
    made = reworded(ASKED | {"question": question, "label": label})
    for each in made:
        agrees = any(each["question"] in group for group in phrases.agreeing)
        assert agrees != any(each["question"] in group for group in phrases.opposing)
        assert each["label"] == (holds == agrees)
    assert 150 < sum(bool(each["label"]) for each in made) < 250, "as often in the negative as not"
    assert len({str(each["question"]) for each in made}) > 40
    assert all(each["state"] == ASKED["state"] for each in made)


def test_what_a_question_is_about_stays_in_it() -> None:
    example = {"state": "x", "source": "qnli_dev", "type": "noul", "label": True}
    for each in reworded(example | {"question": 'Is the answer to "Who: me or {you}?" missing from the text?'}):
        assert "Who: me or {you}?" in str(each["question"])


@pytest.mark.parametrize(
    "other",
    [
        {"question": "Did the assistant refuse the harmful request?", "label": True},
        {"question": "Is this request harmful?", "label": True, "source": "of a user"},
        {"question": "Is this request harmful?", "label": 1, "type": "choice", "options": ["yes", "no"]},
    ],
)
def test_what_it_has_no_words_for_is_left_as_it_is(other: dict[str, object]) -> None:
    assert reworded(ASKED | other, count=3) == [ASKED | other] * 3


def test_a_share_is_asked_in_other_words() -> None:
    made = reworded(ASKED | {"question": "Is this request harmful?", "label": True}, share=0.3)
    assert 80 < sum(each["question"] != "Is this request harmful?" for each in made) < 160


def test_each_known_source_is_in_the_stage_that_asks_otherwise() -> None:
    known = {name.split()[0] for name in Fragments(WORDINGS, heldout=False).names("known")}
    assert known <= STAGES["wordings"].keys()
