"""JSON as CPython up to 3.12 reads and writes it, on any Python: values, messages, positions. It knows no request."""

import json
import re
from codecs import BOM_UTF8
from json import JSONDecodeError
from typing import Any

import numpy as np

from ostraka_gateway.jevos.items import Refusal, app_item
from ostraka_shared.errors import Unreadable

NESTING_MAX = 900
UNREADABLE = "There was an error parsing the body"
"""FastAPI's words for whatever is wrong with a body but its JSON syntax."""

_DECODER = json.JSONDecoder()
_STRING = r'"(?:[^"\\]++|\\.)*+"?'
_STRING_BYTES = re.compile(_STRING.encode(), re.DOTALL)
_STEPS = np.zeros(256, np.int8)
_STEPS[list(b"[{")] = 1
_STEPS[list(b"]}")] = -1
_BRACKET = re.compile(rf'(?:[^"\[\]{{}}]++|{_STRING})*+([\[\]{{}}])', re.DOTALL)
_OUT_OF_RANGE = re.compile(rf"{_STRING}|NaN|-?Infinity", re.DOTALL)
_FLOAT_NAMES = {"NaN": "nan", "Infinity": "inf", "-Infinity": "-inf"}
_SPACE = re.compile(r"[ \t\n\r]*")
_TRAILING_COMMA = "Illegal trailing comma before end of "


def is_json(content_type: str | None) -> bool:
    media = (content_type or "").partition(";")[0].strip().lower()
    return media == "application/json" or (media.startswith("application/") and media.endswith("+json"))


def read_json(body: bytes) -> Any:
    """UTF-8 with or without its mark; lone surrogates pass. Raises Refusal (a syntax error) or Unreadable."""
    try:
        text = body.removeprefix(BOM_UTF8).decode("utf-8", "surrogatepass")
        if not _is_too_deep(body):
            return _DECODER.decode(text)
        _read_up_to(_first_too_deep(text), text)
    except JSONDecodeError as bad:
        raise _json_invalid(bad) from None
    except (ValueError, RecursionError):  # not UTF-8, or an integer of more than 4,300 digits
        pass
    raise Unreadable(UNREADABLE)


def read_text(body: bytes) -> str:
    """A body that is not sent as JSON is one string."""
    try:
        return body.decode()
    except UnicodeDecodeError as bad:
        raise Refusal([app_item(str(bad))]) from None


def write_json(value: Any, *, sort_keys: bool = False, compact: bool = False) -> str:
    """Raises ValueError with CPython 3.12's words, which name the first number that JSON cannot hold."""
    separators = (",", ":") if compact else None
    try:
        return json.dumps(value, ensure_ascii=False, allow_nan=False, sort_keys=sort_keys, separators=separators)
    except ValueError:
        written = json.dumps(value, ensure_ascii=False, sort_keys=sort_keys)
        found = next(token for token in _OUT_OF_RANGE.findall(written) if token in _FLOAT_NAMES)
        raise ValueError(f"Out of range float values are not JSON compliant: {_FLOAT_NAMES[found]}") from None


def _is_too_deep(body: bytes) -> bool:
    """CPython's own limit depends on the caller's depth. This takes a sixth of the time of reading the JSON."""
    if body.count(b"[") + body.count(b"{") <= NESTING_MAX:
        return False
    outside_strings = np.frombuffer(_STRING_BYTES.sub(b"", body), np.uint8)
    return bool(np.cumsum(_STEPS[outside_strings], dtype=np.int32).max() > NESTING_MAX)


def _first_too_deep(text: str) -> int:
    """Where the first container begins that is one too deep."""
    depth = 0
    for bracket in _BRACKET.finditer(text):
        depth += 1 if bracket[1] in "[{" else -1
        if depth > NESTING_MAX:
            return bracket.start(1)
    return len(text)


def _read_up_to(place: int, text: str) -> None:
    """Raises JSONDecodeError where the text is wrong before the container at `place`, or may have none there."""
    try:
        _DECODER.decode(text[:place])
    except JSONDecodeError as bad:
        if (bad.msg, bad.pos) != ("Expecting value", place):
            raise


def _json_invalid(bad: JSONDecodeError) -> Refusal:
    message, place = _as_before_3_13(bad.msg, bad.pos, bad.doc)
    ctx = {"error": message}
    item = {"type": "json_invalid", "loc": ["body", place], "msg": "JSON decode error", "input": {}, "ctx": ctx}
    return Refusal([item])


def _as_before_3_13(message: str, place: int, text: str) -> tuple[str, int]:
    """CPython 3.13 names a trailing comma and its place; before, the missing value and its place were named."""
    if not message.startswith(_TRAILING_COMMA):
        return message, place
    space = _SPACE.match(text, place + 1)
    assert space  # noqa: S101  for mypy: it matches nothing at least
    missing = "Expecting property name enclosed in double quotes" if message.endswith("object") else "Expecting value"
    return missing, space.end()
