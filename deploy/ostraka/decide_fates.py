"""What became of a request, as the line of its outcome tells. Pure."""

import json
from enum import StrEnum

REFUSED_TYPES = frozenset({"invalid_request_error", "api_usage_error", "body_too_large", "poisoned_request"})
"""Errors that the same request gets again, beside those of its fields (a 422, whose detail is a list). All others may
go away: a server that is busy or away, a deadline, a key that was missing, a model call that failed."""
TOO_LARGE_STATUS = 413
QUOTED_CHARACTERS = 200


class Fate(StrEnum):
    ANSWERED = "answered"
    REFUSED = "refused"
    UNANSWERED = "not answered"


def read_fate(line: bytes) -> Fate | None:
    """None: the line is no outcome."""
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(value, dict):
        return None
    if "answers" in value:
        return Fate.ANSWERED
    if "detail" not in value:
        return None
    detail = value["detail"]
    is_refused = isinstance(detail, list) or (isinstance(detail, dict) and detail.get("error_type") in REFUSED_TYPES)
    return Fate.REFUSED if is_refused else Fate.UNANSWERED


def error_line(error_type: str, message: str) -> bytes:
    """An outcome of our own, where no server gave one."""
    return json.dumps({"detail": {"error_type": error_type, "message": message}}, ensure_ascii=False).encode()


def as_outcome(status: int, body: bytes) -> bytes:
    """A proxy's page, or text without JSON, would be no line of an output: it is quoted in one. So is a body of which a
    line could not tell that the request was too large, whoever said so: with `--compat jevos` it is only "Error"."""
    fate = read_fate(body) if b"\n" not in body else None
    said = body.decode(errors="replace")[:QUOTED_CHARACTERS]
    if status == TOO_LARGE_STATUS and fate is not Fate.REFUSED:
        return error_line("body_too_large", f"HTTP {status}: {said}")
    if fate:
        return body
    return error_line("unknown_answer", f"HTTP {status}, and not from Ostraka: {said}")
