"""The form of a request: which errors, where, in which order."""

from typing import Any

import pytest

from tests.unit.gateway.jevos.asking import NOUL, accept, body, items, refuse

NO_OBJECT = "Input should be a valid dictionary or object to extract fields from"


def places(found: list[dict]) -> list[tuple]:
    return [(item["type"], *item["loc"][1:]) for item in found]


@pytest.mark.parametrize("sent", [b"", b"null"])
def test_no_body(sent: bytes) -> None:
    assert items(sent) == [{"type": "missing", "loc": ["body"], "msg": "Field required", "input": None}]


@pytest.mark.parametrize("value", [[], "x", 1, True, 1.5])
def test_a_body_that_is_no_object(value: Any) -> None:
    expected = {"type": "model_attributes_type", "loc": ["body"], "msg": NO_OBJECT, "input": value}
    assert items(value) == [expected]


def test_a_body_of_another_type_is_its_text() -> None:
    (item,) = items(b'{"a":1}', None)
    assert (item["type"], item["input"]) == ("model_attributes_type", '{"a":1}')


def test_root_errors_come_in_order_and_unknown_fields_last() -> None:
    found = items({"zeta": 1, "questions": {"q": {"type": "choice"}}, "model": ""})
    assert places(found) == [
        ("missing", "state"),
        ("string_too_short", "model"),
        ("missing", "questions", "q", "choice", "criteria"),
        ("extra_forbidden", "zeta"),
    ]
    assert found[1]["ctx"] == {"min_length": 1}
    assert found[2]["input"] == {"type": "choice"}


def test_a_question_has_its_fields_errors_before_unknown_ones_and_its_validator_last() -> None:
    found = items(body({"q": {"zeta": 1, "type": "choice", "instructions": 4, "criteria": {"": None}}}))
    assert [kind for kind, *_ in places(found)] == ["string_type", "dict_type", "list_type", "extra_forbidden"]


@pytest.mark.parametrize(
    ("question", "expected"),
    [
        (3, ("model_attributes_type",)),
        (None, ("model_attributes_type",)),
        ({}, ("union_tag_not_found",)),
        ({"type": "bool"}, ("union_tag_invalid",)),
        ({"type": "noul", "criteria": "x"}, ("model_attributes_type", "noul", "criteria")),
        ({"type": "noul", "criteria": {"maybe": ""}}, ("extra_forbidden", "noul", "criteria", "maybe")),
        ({"type": "choice", "criteria": None}, ("dict_type", "choice", "criteria")),
        ({"type": "score", "criteria": None}, ("list_type", "score", "criteria")),
        ({"type": "choice", "criteria": {" \u3000": "x"}}, ("value_error", "choice")),
        ({"type": "choice", "criteria": {"a": None}}, ("value_error", "choice")),
        ({"type": "choice", "criteria": {f"o{n}": None for n in range(27)}}, ("value_error", "choice")),
        ({"type": "score", "criteria": ["a"]}, ("value_error", "score")),
        ({"type": "score", "criteria": [f"l{n}" for n in range(11)]}, ("value_error", "score")),
    ],
)
def test_wrong_questions(question: Any, expected: tuple) -> None:
    (item,) = items(body({"q": question}))
    kind, *below = expected
    assert (item["type"], item["loc"]) == (kind, ["body", "questions", "q", *below])
    if kind == "value_error":
        assert item["msg"].startswith("Value error, ")
        assert (item["input"], item["ctx"]) == (question, {"error": {}})
    assert "url" not in item


@pytest.mark.parametrize(("tag", "shown"), [(1, "1"), (None, "None"), ([True], "[True]"), ({"a": 1.0}, "{'a': 1.0}")])
def test_a_type_is_shown_as_python_writes_it(tag: Any, shown: str) -> None:
    (item,) = items(body({"q": {"type": tag}}))
    names = "'noul', 'choice', 'score'"
    assert item["msg"] == f"Input tag '{shown}' found using 'type' does not match any of the expected tags: {names}"
    assert item["ctx"] == {"discriminator": "'type'", "tag": shown, "expected_tags": names}


def test_no_questions() -> None:
    (item,) = items({"model": "jev-1", "state": "s", "questions": {}})
    assert item["ctx"] == {"field_type": "Dictionary", "min_length": 1, "actual_length": 0}


def test_the_most_that_is_allowed() -> None:
    choice = {"type": "choice", "criteria": {f"o{n}": None for n in range(26)}}
    score = {"type": "score", "criteria": [f"l{n}" for n in range(10)]}
    assert accept(body({"c": choice, "s": score})).prompt_count == 26 + 9


@pytest.mark.parametrize("name", ["served", "jev-", "jev-2"])
def test_names_of_the_model(name: str) -> None:
    assert accept(body(model=name)).model == name


@pytest.mark.parametrize("name", ["jev", "Jev-1", " served", "typesafe/jev-1"])
def test_other_names(name: str) -> None:
    (item,) = items(body(model=name, state=""))
    assert (list(item), item["loc"], item["type"]) == (["loc", "msg", "type"], ["body", "model"], "value_error")


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"model": float("nan")}, "Out of range float values are not JSON compliant: nan"),
        ({"extra": [float("-inf"), "\ud800"]}, "Out of range float values are not JSON compliant: -inf"),
        (
            {"extra": "\ud800\udfff"},
            "'utf-8' codec can't encode characters in position 108-109: surrogates not allowed",
        ),
        ({"model": "\ud800"}, "'utf-8' codec can't encode character '\\ud800' in position 153: surrogates not allowed"),
    ],
)
def test_an_echo_that_cannot_be_written_is_the_error(fields: dict, message: str) -> None:
    assert items(body(**fields)) == [{"loc": ["body"], "msg": message, "type": "value_error"}]


def test_a_long_form_is_refused_by_its_size() -> None:
    assert refuse(b"a" * 8193, "application/x-www-form-urlencoded") == (413, "Error")
    assert refuse(b"a" * 8192, "application/x-www-form-urlencoded")[0] == 422


def test_there_is_an_end_to_the_list() -> None:
    (item,) = items(body(dict.fromkeys((f"q{n}" for n in range(10_001)), 1)))
    assert (item["loc"], item["type"]) == (["body"], "value_error")


def test_the_request_is_ours_and_whole() -> None:
    questions = {
        "n": NOUL | {"criteria": {"true": "t"}},
        "c": {"type": "choice", "criteria": {"a": None, "b": {"k": [1.0]}}},
        "s": {"type": "score", "instructions": None, "criteria": [" low ", ["high"]]},
    }
    request = accept(body(questions, state={"z": 1, "a": [2]}))
    assert list(request.state) == ["z", "a"]
    assert request.questions["n"].instructions == "Is it late?"
    assert request.questions["c"].criteria == {"a": None, "b": {"k": [1.0]}}
    assert request.questions["s"].criteria == [" low ", ["high"]]
