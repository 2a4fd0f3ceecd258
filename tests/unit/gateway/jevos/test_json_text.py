import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ostraka_gateway.jevos import json_text
from ostraka_gateway.jevos.items import Refusal
from ostraka_gateway.jevos.json_text import NESTING_MAX, is_json, read_json, read_text, write_json
from ostraka_shared.errors import RequestError, Unreadable
from tests.unit.gateway.jevos.asking import DIALECT, nest, refuse

UNREADABLE = (400, "There was an error parsing the body")


@pytest.mark.parametrize(
    ("content_type", "expected"),
    [
        ("application/json", True),
        (" Application/JSON ; charset=latin-1", True),
        ("application/problem+json", True),
        ("application/+json", True),
        ("application/json-patch", False),
        ("text/json", False),
        ("text/x+json", False),
        ("", False),
        (None, False),
    ],
)
def test_which_types_are_json(content_type: str | None, expected: bool) -> None:
    assert is_json(content_type) is expected


@pytest.mark.parametrize(
    ("text", "place", "message"),
    [
        ("", 0, "Expecting value"),
        (" \n", 2, "Expecting value"),
        ("nul", 0, "Expecting value"),
        ("[1,]", 3, "Expecting value"),
        ("[1, ]", 4, "Expecting value"),
        ("[", 1, "Expecting value"),
        ("-", 0, "Expecting value"),
        ("01", 1, "Extra data"),
        ("{} \n{}", 4, "Extra data"),
        ('{"a":1,}', 7, "Expecting property name enclosed in double quotes"),
        ('{"a":1 , }', 9, "Expecting property name enclosed in double quotes"),
        ("{", 1, "Expecting property name enclosed in double quotes"),
        ('{"a" 1}', 5, "Expecting ':' delimiter"),
        ("[1 2]", 3, "Expecting ',' delimiter"),
        ('{"é😀":1 x}', 8, "Expecting ',' delimiter"),
        ('["abc', 1, "Unterminated string starting at"),
        ('"a\nb"', 2, "Invalid control character at"),
        ('"\\x"', 1, "Invalid \\escape"),
        ('"\\u12g4"', 2, "Invalid \\uXXXX escape"),
        ("\ufeff{}", 0, "Expecting value"),  # after the body's own mark
    ],
)
def test_syntax_errors(text: str, place: int, message: str) -> None:
    (item,) = refuse(b"\xef\xbb\xbf" + text.encode())[1]  # the mark is no character of the text
    assert item == {
        "type": "json_invalid",
        "loc": ["body", place],
        "msg": "JSON decode error",
        "input": {},
        "ctx": {"error": message},
    }
    assert list(item) == ["type", "loc", "msg", "input", "ctx"]


@pytest.mark.parametrize(
    ("text", "told", "expected"),
    [
        ('{"a":1 , }', ("object", 7), ("Expecting property name enclosed in double quotes", 9)),
        ("[1,]", ("array", 2), ("Expecting value", 3)),
    ],
)
def test_trailing_commas_are_told_as_before_3_13(text: str, told: tuple, expected: tuple) -> None:
    kind, comma = told
    assert json_text._as_before_3_13(f"Illegal trailing comma before end of {kind}", comma, text) == expected


def test_what_python_reads_beyond_json_is_read() -> None:
    found = read_json(b'[NaN, -Infinity, 1e400, -0, 1.0, "\\ud800", "\xed\xa0\x80"]')
    assert repr(found) == "[nan, -inf, inf, 0, 1.0, '\\ud800', '\\ud800']"
    assert list(read_json(b'{"a":1,"b":2,"a":3}').items()) == [("a", 3), ("b", 2)]
    assert read_json(b"9" * 4300) == int("9" * 4300)


@pytest.mark.parametrize("body", [b'"\xff"', b'"\xc3"', b"9" * 4301, b"[-" + b"9" * 4301 + b"]", "{}".encode("utf-16")])
def test_unreadable_bodies(body: bytes) -> None:
    assert refuse(body) == UNREADABLE


@pytest.mark.parametrize("kind", [list, dict])
def test_nesting(kind: type) -> None:
    assert DIALECT is not None  # its making leaves room for so many
    assert read_json(json.dumps(nest(NESTING_MAX, kind)).encode()) == nest(NESTING_MAX, kind)
    assert refuse(json.dumps(nest(NESTING_MAX + 1, kind)).encode()) == UNREADABLE


def test_brackets_in_strings_nest_nothing() -> None:
    text = "[{" * NESTING_MAX + '"\\'
    assert read_json(json.dumps([text, {text: text}]).encode()) == [text, {text: text}]
    side_by_side = [[]] * (NESTING_MAX + 2)
    assert read_json(json.dumps(side_by_side).encode()) == side_by_side


@pytest.mark.parametrize(
    ("before", "status"),
    [(b"", 400), (b'{"[": ', 400), (b"[1 ", 422), (b'{"a":1,', 400), (b"9" * 4301 + b" ", 400), (b"[tru", 422)],
)
def test_the_first_fault_of_a_deep_body_is_told(before: bytes, status: int) -> None:
    deep = b'{"k":' if before == b'{"a":1,' else b"["
    opening = b'"k":' if before == b'{"a":1,' else b""
    assert refuse(before + opening + deep * (NESTING_MAX + 1))[0] == status


def test_an_object_where_a_name_is_due_is_a_syntax_error_however_deep() -> None:
    status, (item,) = refuse(b"[" * (NESTING_MAX - 1) + b'{"a":1,{')
    assert (status, item["loc"]) == (422, ["body", NESTING_MAX + 6])
    assert item["ctx"] == {"error": "Expecting property name enclosed in double quotes"}


@given(st.text(alphabet='[]{}",:\\1a \n', max_size=40))
def test_short_bodies_are_read_as_python_does(text: str) -> None:
    try:
        expected = json.JSONDecoder().decode(text)
    except json.JSONDecodeError:
        with pytest.raises(RequestError):
            read_json(text.encode())
    else:
        assert read_json(text.encode()) == expected


@given(st.text(alphabet='[]{}",:\\1a', max_size=30))
def test_a_low_limit_is_kept_and_hides_no_earlier_fault(text: str) -> None:
    """The rule, said another way: what is nested too deep is unreadable unless the text before is wrong already."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(json_text, "NESTING_MAX", 2)
        try:
            found = read_json(text.encode())
        except Unreadable:
            assert any(text[:end].count("[") + text[:end].count("{") > 2 for end in range(len(text) + 1))
        except Refusal as bad:
            assert bad.items[0]["loc"] == ["body", first_fault(text)]  # noqa: PT017  one of three outcomes
        else:
            assert depth(found) <= 2


def first_fault(text: str) -> int | None:
    try:
        json.JSONDecoder().decode(text)
    except json.JSONDecodeError as bad:
        return bad.pos
    return None


def depth(value: object) -> int:
    match value:
        case dict():
            return 1 + max(map(depth, value.values()), default=0)
        case list():
            return 1 + max(map(depth, value), default=0)
    return 0


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"x\xff", "'utf-8' codec can't decode byte 0xff in position 1: invalid start byte"),
        (b"x\xe2\x82(", "'utf-8' codec can't decode bytes in position 1-2: invalid continuation byte"),
        (b"\xe2\x82", "'utf-8' codec can't decode bytes in position 0-1: unexpected end of data"),
        (b"\xed\xa0\x80", "'utf-8' codec can't decode byte 0xed in position 0: invalid continuation byte"),
    ],
)
def test_text_that_is_not_utf_8(body: bytes, message: str) -> None:
    assert refuse(body, "text/plain") == (422, [{"loc": ["body"], "msg": message, "type": "value_error"}])


def test_other_text_is_a_string() -> None:
    assert read_text("\ufeffé".encode()) == "\ufeffé"


@pytest.mark.parametrize(
    ("value", "name"),
    [
        ([1.5, {"a": "NaN", "b": float("-inf")}, float("nan")], "-inf"),
        ({"z": float("nan"), "a": float("inf")}, "nan"),
        ('"NaN\\"', None),
    ],
)
def test_the_first_number_that_json_cannot_hold_is_named(value: object, name: str | None) -> None:
    if name is None:
        assert json.loads(write_json(value)) == value
        return
    with pytest.raises(ValueError, match=f"^Out of range float values are not JSON compliant: {name}$"):
        write_json(value)


def test_sorted_json_is_searched_in_its_own_order() -> None:
    with pytest.raises(ValueError, match=r"inf$"):
        write_json({"z": float("nan"), "a": float("inf")}, sort_keys=True)


def test_a_body_needs_no_mark() -> None:
    assert refuse(b"[1,]")[1] == refuse(b"\xef\xbb\xbf[1,]")[1]
