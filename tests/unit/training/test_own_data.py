import gzip
import json
import re
from collections import Counter
from functools import cache
from pathlib import Path
from random import Random

import pytest

from training.own_data.__main__ import FOLDER, HELDOUT_PER_KIND, _make
from training.own_data.baseline import accuracy
from training.own_data.compose import compose
from training.own_data.fragments import Fragments, fill
from training.own_data.kinds import KINDS
from training.own_data.scenario import Scenario


@cache
def committed(split: str) -> list[dict[str, object]]:
    return [json.loads(line) for line in gzip.decompress((FOLDER / f"own_{split}.jsonl.gz").read_bytes()).splitlines()]


@pytest.mark.parametrize("kind", KINDS)
def test_of_a_kind_each_question_and_each_state_is_answered_yes_as_often_as_no(kind: str) -> None:
    examples, _ = _make(kind, 200, heldout=False)
    noul = [one for one in examples if one["type"] == "noul"]
    for side in ("state", "question"):
        surplus: Counter[str] = Counter()
        for one in noul:
            surplus[json.dumps(one[side])] += 1 if one["label"] else -1
        assert set(surplus.values()) == {0}


@pytest.mark.parametrize("kind", KINDS)
def test_the_committed_heldout_file_is_what_the_fragments_make(kind: str) -> None:
    made, _ = _make(kind, HELDOUT_PER_KIND, heldout=True)
    own = [one for one in committed("heldout") if one["kind"] == kind]
    assert sorted(map(json.dumps, own)) == sorted(map(json.dumps, made))


def test_no_state_of_the_heldout_file_was_trained_on() -> None:
    trained = {json.dumps(one["state"]) for one in committed("train")}
    assert not [one for one in committed("heldout") if json.dumps(one["state"]) in trained]


def test_every_label_names_an_option_or_level() -> None:
    for one in committed("train") + committed("heldout"):
        if one["type"] == "noul":
            assert isinstance(one["label"], bool)
            continue
        names = list(one["options" if one["type"] == "choice" else "levels"])  # type: ignore[call-overload]
        assert 0 <= one["label"] < len(names)
        assert len(set(names)) == len(names) >= 2


def test_two_positions_are_over_the_limit_where_their_sum_is() -> None:
    asked = re.compile(r"(?:Is the (?:amount above|invoice over)|Would a budget of) ([\d,]+)")
    checked = 0
    for one in committed("train"):
        found = asked.match(str(one["question"]))
        if found and isinstance(one["state"], dict) and "items" in one["state"]:
            total = sum(item["price"] for item in one["state"]["items"])
            assert one["label"] == (total > int(found[1].replace(",", "")))
            checked += 1
    assert checked > 5


def test_heldout_lines_are_not_in_the_train_split() -> None:
    train, heldout = (Fragments("urgency", heldout=is_heldout) for is_heldout in (False, True))
    assert set(train.lines("topic")).isdisjoint(heldout.lines("topic"))
    assert set(train.words("ask urgent")) < set(heldout.words("ask urgent"))


def test_a_scenario_gives_two_questions_with_opposed_answers() -> None:
    scenario = Scenario(("The soup is hot.", "The soup is cold."), {"urgent": (True, False)})
    four = list(compose("urgency", scenario, Fragments("urgency", heldout=False), Random(1)))
    labels = [one["label"] for one in four]
    assert labels[:2] == [not label for label in labels[2:]]
    assert labels[0] != labels[1]


def test_an_unknown_slot_is_a_fault_of_the_fragments() -> None:
    with pytest.raises(KeyError):
        fill("Hello {nobody}", {})


def test_the_baseline_finds_an_artefact_where_there_is_one() -> None:
    texts = ["this is never so", "this is surely so"] * 40
    assert accuracy(texts, [False, True] * 40, range(80)) == 1.0
    assert accuracy(["the same words"] * 80, [False, True] * 40, range(80)) <= 0.6


def test_the_files_are_small(tmp_path: Path) -> None:
    assert sum((FOLDER / f"own_{split}.jsonl.gz").stat().st_size for split in ("train", "heldout")) < 1 << 20
