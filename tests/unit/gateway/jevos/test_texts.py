"""What the model would read: sizes, characters and numbers, once the form is right."""

from typing import Any

import pytest

from tests.unit.gateway.jevos.asking import NOUL, accept, body, items

NAN, INF = float("nan"), float("inf")
RANGE = "Out of range float values are not JSON compliant: "


def app(message: str | None, *loc: Any, kind: str = "value_error") -> dict:
    return {"loc": ["body", *loc], "msg": message, "type": kind}


def noul(**fields: Any) -> dict:
    return body({"q": {"type": "noul"} | fields})


def choice(criteria: dict) -> dict:
    return body({"q": {"type": "choice", "criteria": criteria}})


def score(*levels: Any, **fields: Any) -> dict:
    return body({"q": {"type": "score", "criteria": list(levels)} | fields})


LONG = "x" * 8001


@pytest.mark.parametrize(
    ("sent", "loc"),
    [
        (noul(instructions=LONG), ("boolean", "instructions")),
        (noul(instructions=["x" * 7997]), ("boolean", "instructions")),
        (noul(criteria={"true": "x" * 7996}), ("boolean", "true_description")),
        (noul(criteria={"false": "x" * 7997}), ("boolean", "false_description")),
        (choice({LONG: None, "b": ""}), ("choice", "options", 0, "description")),
        (choice({"a": None, "b": "x" * 7998}), ("choice", "options", 1, "description")),
        (score("a", LONG), ("score", "levels", 1)),
    ],
)
def test_too_long(sent: dict, loc: tuple) -> None:
    message = "String should have at most 8000 characters"
    assert items(sent) == [app(message, "questions", "q", *loc, kind="string_too_long")]


@pytest.mark.parametrize(
    "sent",
    [
        noul(instructions=f" {'x' * 8000}\u3000"),
        noul(instructions="\U0001f600" * 8000),
        noul(instructions=["x" * 7996]),
        noul(criteria={"true": "x" * 7995, "false": "x" * 7996}),
        noul(criteria={"true": "", "false": None}),
        noul(criteria={"true": "  ", "false": {}}),
        choice({"a": None, "b": "x" * 7997}),
        choice({"a": "", " b": "  "}),
        score("a", "x" * 8000),
        score({}, []),
    ],
)
def test_just_right(sent: dict) -> None:
    accept(sent)


def test_an_empty_level() -> None:
    message = "String should have at least 1 character"
    expected = [app(message, "questions", "q", "score", "levels", n, kind="string_too_short") for n in (0, 2)]
    assert items(score("", "a", " \x1c")) == expected


def test_levels_that_read_alike() -> None:
    (item,) = items(score("low", {"a": 1}, '{"a":1} '))
    assert (item["loc"], item["type"]) == (["body", "questions", "q", "score"], "value_error")
    (item,) = items(score("low", "low", instructions=LONG))  # told only of a question that is fine otherwise
    assert item["type"] == "string_too_long"


def test_all_questions_errors_come_at_once() -> None:
    questions = {
        "a": NOUL | {"instructions": LONG},
        "b": NOUL,
        "c": {"type": "score", "criteria": ["x", "x"]},
        "d": {"type": "choice", "criteria": {"\ud800": "x", "b": None}},
    }
    found = items(body(questions, state=""))
    assert [item["loc"][2] for item in found] == ["a", "c", "d"]
    assert found[2]["type"] == "string_unicode"
    assert found[2]["msg"] == "Input should be a valid string, unable to parse raw data as a unicode string"


@pytest.mark.parametrize(
    "question",
    [
        NOUL | {"instructions": {"z": INF, "a": [NAN]}},
        {"type": "noul", "criteria": {"true": [NAN]}},
        {"type": "choice", "criteria": {"a": [NAN], "b": [INF]}},
        {"type": "score", "criteria": ["a", {"b": NAN}]},
    ],
)
def test_numbers_that_json_cannot_hold_come_before_any_length(question: dict) -> None:
    assert items(body({"long": NOUL | {"instructions": LONG}, "q": question})) == [app(f"{RANGE}nan")]


def test_the_count_of_questions_comes_after_their_texts() -> None:
    many: dict[str, Any] = {f"q{n}": NOUL for n in range(1025)}
    message = "Dictionary should have at most 1024 items after validation, not 1025"
    assert items(body(many, state="")) == [app(message, "questions", kind="too_long")]
    many["q7"] = {"type": "score", "criteria": ["", "a"]}
    assert [item["type"] for item in items(body(many))] == ["string_too_short"]


@pytest.mark.parametrize("state", ["", " \u3000\n\x85", {}, []])
def test_an_empty_state(state: Any) -> None:
    (item,) = items(body(state=state))
    assert (item["loc"], item["type"]) == (["body"], "value_error")


@pytest.mark.parametrize(
    ("state", "message"),
    [
        ([-INF, "\ud800"], f"{RANGE}-inf"),
        ({"z": NAN, "a": INF}, f"{RANGE}nan"),
        ("é\ud800", "'utf-8' codec can't encode character '\\ud800' in position 2: surrogates not allowed"),
        (["\n\udc00\udc01"], "'utf-8' codec can't encode characters in position 4-5: surrogates not allowed"),
    ],
)
def test_a_state_that_cannot_be_written(state: Any, message: str) -> None:
    assert items(body(state=state)) == [app(f"Value error, {message}")]


def test_the_size_of_a_state_is_that_of_its_json() -> None:
    accept(body(state="é" * 127_999))
    accept(body(state=["a", "b" * 255_991]))
    for state in ("é" * 128_000, "\n" * 127_999 + "x", ["a", "b" * 255_992]):
        (item,) = items(body(state=state))
        assert (item["loc"], item["type"]) == (["body"], "value_error")


@pytest.mark.parametrize("question_id", ["", " \t", "k" * 129, "\ud800"])
def test_question_ids(question_id: str) -> None:
    (item,) = items(body({"fine": NOUL, question_id: NOUL}))
    assert (item["loc"], item["type"]) == (["body"], "value_error")


def test_question_ids_are_checked_last() -> None:
    accept(body({"\U0001f600" * 128: NOUL}))
    (item,) = items(body({" ": NOUL}, state=[NAN]))
    assert item["msg"].startswith("Value error, Out of range")


def test_an_error_at_an_id_that_cannot_be_written() -> None:
    (item,) = items(body({"\ud800": NOUL | {"instructions": LONG}}))
    expected = "'utf-8' codec can't encode character '\\ud800' in position 39: surrogates not allowed"
    assert item == app(expected)


def test_there_is_an_end_to_the_list() -> None:
    many = {f"q{n}": {"type": "score", "criteria": ["", ""]} for n in range(5001)}
    (item,) = items(body(many))
    assert (item["loc"], item["type"]) == (["body"], "value_error")
