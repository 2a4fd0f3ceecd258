"""The dialect's steps: bytes to a value, the value to a request of ours, answers and errors back."""

import sys
from collections.abc import Sequence
from typing import Any

from pydantic import ValidationError

from ostraka_gateway import schemas
from ostraka_gateway.answers import encode_response
from ostraka_gateway.dialect import Asked
from ostraka_gateway.jevos import problems, wire
from ostraka_gateway.jevos.json_text import is_json, read_json, read_text
from ostraka_gateway.jevos.texts import check_texts
from ostraka_gateway.limits import DEFAULT_LIMITS, Limits
from ostraka_gateway.problems import Problem
from ostraka_shared.errors import BodyTooLarge, UnknownModel

ALIAS_PREFIX = "jev-"
FORM = "application/x-www-form-urlencoded"
FORM_BYTES_MAX = 8192
"""jev's HTTP library refuses a longer form before anyone reads it. `curl -d` sends a form unless told otherwise."""
STACK_FRAMES = 4000
"""CPython's limit counts every container being read or written: 900 are legal, and an error echoes them."""


class JevosDialect:
    checks_key_first = False

    def __init__(self, model_name: str, limits: Limits = DEFAULT_LIMITS) -> None:
        self._model_name = model_name
        self._limits = limits
        sys.setrecursionlimit(max(sys.getrecursionlimit(), STACK_FRAMES))

    def decode(self, body: bytes, content_type: str | None) -> Any:
        """Raises Refusal, Unreadable or BodyTooLarge."""
        if not body:
            return None
        if is_json(content_type):
            return read_json(body)
        if (content_type or "").startswith(FORM) and len(body) > FORM_BYTES_MAX:
            raise BodyTooLarge(f"a form should have at most {FORM_BYTES_MAX} bytes")
        return read_text(body)

    def validate(self, decoded: Any) -> Asked:
        """Raises pydantic's ValidationError, UnknownModel or Refusal."""
        request = wire.parse_request(decoded)
        if request.model != self._model_name and not request.model.startswith(ALIAS_PREFIX):
            raise UnknownModel(
                f"the model here is {self._model_name!r}: send that name, or one that begins with {ALIAS_PREFIX}",
                loc=("body", "model"),
            )
        check_texts(request, self._limits)
        return Asked(_translate(request))

    def answer(self, asked: Asked, p_yes: Sequence[float], input_tokens: int) -> bytes:
        return encode_response(asked.request, self._model_name, p_yes, input_tokens)

    def refuse(self, error: Exception) -> Problem:
        return problems.from_validation(error) if isinstance(error, ValidationError) else problems.from_error(error)


def _translate(request: wire.Request) -> schemas.SystemOneRequest:
    """Without the default dialect's own checks: this one's have been made, and are others."""
    questions = {question_id: _question(question) for question_id, question in request.questions.items()}
    return schemas.SystemOneRequest.model_construct(state=request.state, model=request.model, questions=questions)


def _question(question: wire.Question) -> schemas.Question:
    match question:
        case wire.Noul():
            return schemas.Noul.model_construct(type="noul", instructions=question.instructions)
        case wire.Choice():
            return schemas.Choice.model_construct(
                type="choice", instructions=question.instructions, criteria=question.criteria
            )
        case wire.Score():
            return schemas.Score.model_construct(
                type="score", instructions=question.instructions, criteria=question.criteria
            )
