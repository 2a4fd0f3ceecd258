"""A dialect is one way of asking and answering: what a body must look like, and how answers and refusals do.

All dialects meet in `SystemOneRequest`; between `validate` and `answer` nothing knows which one a client speaks.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from pydantic import ValidationError

from ostraka_gateway import problems
from ostraka_gateway.answers import encode_response
from ostraka_gateway.limits import DEFAULT_LIMITS, Limits
from ostraka_gateway.problems import Problem
from ostraka_gateway.schemas import SystemOneRequest, parse_request
from ostraka_shared.errors import UnknownModel, UnsupportedMediaType

ALIAS_PREFIXES = ("jev-", "typesafe/jev-", "~typesafe/jev-")
"""Clients of the hosted API, and of those who resell it, name its models; the served one answers."""


@dataclass(frozen=True, slots=True)
class Asked:
    """`source` is whatever the dialect needs again to answer in its own form."""

    request: SystemOneRequest
    source: Any = None


class Dialect(Protocol):
    checks_key_first: bool
    """Whether a wrong key is told before the body is read, or only once the body was found to be decodable."""

    def decode(self, body: bytes, content_type: str | None) -> Any:
        """From bytes to a value, before anything is known of the client."""

    def validate(self, decoded: Any) -> Asked: ...

    def answer(self, asked: Asked, p_yes: Sequence[float], input_tokens: int) -> bytes: ...

    def refuse(self, error: Exception) -> Problem:
        """Whatever any step raised, as this dialect's clients expect it."""


Dialects = Mapping[str, Callable[[], Dialect]]
"""What is spoken at each path where decisions are asked for; made for each request, since one may have to find out."""


class Refusals(Protocol):
    """What a server says outside a dialect's steps; the modules called `problems` are its forms."""

    def from_error(self, error: BaseException) -> Problem: ...

    def unrouted(self, method: str, path: str, allow: str) -> Problem: ...


class SystemOneDialect:
    """The default: lenient, as the hosted API is. `model_name` is the served name."""

    checks_key_first = True

    def __init__(self, model_name: str, limits: Limits = DEFAULT_LIMITS) -> None:
        self._model_name = model_name
        self._limits = limits

    def decode(self, body: bytes, content_type: str | None) -> bytes:
        """The body itself: pydantic parses and validates in one pass over the bytes. Raises UnsupportedMediaType.

        Any type may carry JSON, but parts carry images, which must not be ignored.
        """
        if content_type is not None and content_type.lower().startswith("multipart/"):
            raise UnsupportedMediaType("this server reads text only: send the JSON itself, as application/json")
        return body

    def validate(self, decoded: bytes) -> Asked:
        """Raises pydantic's ValidationError, or UnknownModel."""
        request = parse_request(decoded, self._limits)
        check_model(request.model, self._model_name)
        return Asked(request)

    def answer(self, asked: Asked, p_yes: Sequence[float], input_tokens: int) -> bytes:
        return encode_response(asked.request, self._model_name, p_yes, input_tokens)

    def refuse(self, error: Exception) -> Problem:
        return problems.from_validation(error) if isinstance(error, ValidationError) else problems.from_error(error)


def check_model(asked: str, served: str) -> None:
    """Raises UnknownModel unless `asked` is the served name or an alias of it."""
    if asked != served and not asked.startswith(ALIAS_PREFIXES):
        raise UnknownModel(f"this server serves {served!r}; send that name or jev-latest", loc=("body", "model"))
