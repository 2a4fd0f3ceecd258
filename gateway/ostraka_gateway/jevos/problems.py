"""Errors as this dialect's responses: `{"detail": [items]}` with 422, `{"detail": "words"}` with any other status."""

from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from ostraka_gateway.jevos.items import Refusal, app_item
from ostraka_gateway.jevos.json_text import write_json
from ostraka_gateway.jevos.wire import wire_items
from ostraka_gateway.problems import INVALID_STATUS, STATUS, Problem, headers_for
from ostraka_shared.errors import (
    BodyTooLarge,
    InvalidRequest,
    OstrakaError,
    PromptTooLong,
    RequestError,
    Unauthenticated,
)

_WORDS: dict[type[OstrakaError], str] = {
    Unauthenticated: "Missing or invalid API key",
    BodyTooLarge: "Error",
}
"""Of errors that jev has too. Others, such as an overload, keep our own."""
CRASHED_STATUS = 500
METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "DELETE", "PATCH"})

_JSON = {"content-type": "application/json"}
_TEXT = {"content-type": "text/plain; charset=utf-8"}


def from_validation(error: ValidationError) -> Problem:
    return _invalid(wire_items(error))


def from_error(error: BaseException) -> Problem:
    match error:
        case Refusal():
            return _invalid(error.items)
        case PromptTooLong():  # in jev a check of the whole request
            return _invalid([app_item(str(error))])
        case InvalidRequest():
            return _invalid([app_item(str(error), error.loc, error.kind)])
        case OstrakaError() if error.code in STATUS and STATUS[error.code][0] != CRASHED_STATUS:
            status, _ = STATUS[error.code]
            return _problem(status, _WORDS.get(type(error), str(error)), headers_for(error))
        case RequestError():
            return _invalid([app_item(str(error))])
        case _:
            return Problem(CRASHED_STATUS, b"Internal Server Error", dict(_TEXT))


def unrouted(method: str, path: str, allow: str) -> Problem:  # noqa: ARG001
    """`allow`: the methods the path has; jev knows of no others than METHODS, and lists no HEAD."""
    if allow and method in METHODS:
        return _problem(405, "Method Not Allowed", {"allow": "POST" if "POST" in allow else "GET"})
    return _problem(404, "Not Found")


def _problem(status: int, words: str, headers: Mapping[str, str] | None = None) -> Problem:
    return Problem(status, _encode(words), _JSON | dict(headers or {}))


def _invalid(items: list[Any]) -> Problem:
    try:
        body = _encode(items)
    except ValueError as bad:  # what is echoed has NaN or a lone surrogate: then that is the error
        body = _encode([app_item(str(bad))])
    return Problem(INVALID_STATUS, body, dict(_JSON))


def _encode(detail: Any) -> bytes:
    return write_json({"detail": detail}, compact=True).encode()
