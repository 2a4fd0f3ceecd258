"""Errors as HTTP: the only table from an error's code to a status. It knows no framework, and logs nothing.

422 has `{"detail": [{"loc", "msg", "type"}, ...]}`; every other has `{"detail": {"error_type", "message"}}`.
"""

import json
import math
from dataclasses import dataclass, field

from pydantic import ValidationError

from ostraka_gateway.schemas import DetailItem, validation_detail
from ostraka_shared.errors import (
    InvalidRequest,
    OstrakaError,
    RequestError,
    RequestTooSlow,
    ServingError,
    TooManyConnections,
    Unauthenticated,
    UnknownModel,
    UnsupportedMediaType,
)

INVALID_STATUS = 422
STATUS = {
    "unauthenticated": (401, "authentication_error"),
    "rate_limited": (429, "rate_limit_error"),
    "overloaded": (529, "overloaded_error"),
    "too_many_connections": (503, "overloaded_error"),
    "no_worker_ready": (503, "no_worker_ready"),
    "draining": (503, "draining"),
    "deadline_exceeded": (504, "deadline_exceeded"),
    "engine_failed": (500, "engine_failed"),
    "poisoned_request": (500, "poisoned_request"),
    "internal_error": (500, "internal_error"),
    "unreadable": (400, "invalid_request_error"),
    "unknown_model": (400, "api_usage_error"),
    "not_found": (404, "not_found"),
    "method_not_allowed": (405, "method_not_allowed"),
    "request_too_slow": (408, "request_timeout"),
    "body_too_large": (413, "body_too_large"),
    "unsupported_media_type": (415, "unsupported_media_type"),
    "client_left": (499, "client_left"),
    "headers_too_large": (431, "headers_too_large"),
    "unknown_transfer_coding": (501, "unknown_transfer_coding"),
}
"""An error's code: its status, and the `error_type` clients see. Where the System One API's clients know a name for the
status it is that one; elsewhere our own code says more."""

_JSON = {"content-type": "application/json"}
_BODY = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))


@dataclass(frozen=True, slots=True)
class Problem:
    """A whole response."""

    status: int
    body: bytes
    headers: dict[str, str] = field(default_factory=lambda: dict(_JSON))


def from_validation(error: ValidationError) -> Problem:
    """Of a request's models only: any other ValidationError is our own fault, and for `from_error`."""
    return _invalid(validation_detail(error))


def from_error(error: BaseException) -> Problem:
    match error:
        case UnknownModel():  # as the hosted API says it: nothing is wrong with the form
            return _problem(error.code, str(error))
        case InvalidRequest():
            return _invalid([{"loc": list(error.loc), "msg": str(error), "type": error.kind}])
        case RequestError() | ServingError() if error.code in STATUS and type(error) is not ServingError:
            return _problem(error.code, str(error), headers_for(error))
        case RequestError():
            return _invalid([{"loc": ["body"], "msg": str(error), "type": "value_error"}])
        case _:  # what it says is for the log, not for the client
            return _problem("internal_error", "Something went wrong in this server; its log says what")


def headers_for(error: OstrakaError) -> dict[str, str]:
    """What a refusal says beside its body, the same in every dialect."""
    match error:
        case TooManyConnections():
            return _retry_headers(error.retry_after_s) | {"connection": "close"}
        case ServingError():
            return _retry_headers(error.retry_after_s)
        case Unauthenticated():
            return {"www-authenticate": "Bearer"}
        case UnsupportedMediaType() if error.accept_encoding:
            return {"accept-encoding": error.accept_encoding}
        case RequestTooSlow():  # its rest may still be on the way: nothing can follow on this connection
            return {"connection": "close"}
        case _:
            return {}


def unrouted(method: str, path: str, allow: str) -> Problem:  # noqa: ARG001  a dialect may ask which method
    """`allow`: the methods the path has, as the Allow header lists them; "" where there is nothing at it."""
    return method_not_allowed(allow) if allow else not_found(path)


def not_found(path: str) -> Problem:
    if path.startswith("/v1/v1/"):
        return _problem("not_found", "There is nothing at this path: the base URL should end before its /v1")
    return _problem("not_found", "There is nothing at this path")


def method_not_allowed(allow: str) -> Problem:
    """`allow`: the methods the path has, as the Allow header lists them."""
    return _problem("method_not_allowed", f"This path takes {allow} only", {"allow": allow})


def _retry_headers(retry_after_s: float | None) -> dict[str, str]:
    """The SDKs read milliseconds first; the standard header, in whole seconds, never asks to come back earlier."""
    if retry_after_s is None or not math.isfinite(retry_after_s):
        return {}
    wait_s = max(0.0, retry_after_s)
    return {"retry-after-ms": str(math.ceil(wait_s * 1000)), "retry-after": str(math.ceil(wait_s))}


def _invalid(detail: list[DetailItem]) -> Problem:
    return Problem(INVALID_STATUS, _encode(detail))


def _problem(code: str, message: str, headers: dict[str, str] | None = None) -> Problem:
    status, error_type = STATUS[code]
    return Problem(status, _encode({"error_type": error_type, "message": message}), _JSON | (headers or {}))


def _encode(detail: object) -> bytes:
    """A message may quote what cannot be UTF-8: a lone surrogate becomes a question mark."""
    return _BODY.encode({"detail": detail}).encode(errors="replace")
