"""A request through the dialect's steps, without HTTP."""

import json
from typing import Any

from pydantic import ValidationError

from ostraka_gateway.jevos.dialect import JevosDialect
from ostraka_gateway.schemas import SystemOneRequest
from ostraka_shared.errors import OstrakaError

JSON = "application/json"
NOUL = {"type": "noul", "instructions": "Is it late?"}
DIALECT = JevosDialect("served")


def body(questions: Any = None, **fields: Any) -> dict[str, Any]:
    return {"model": "jev-latest", "state": "Two days late.", "questions": questions or {"q": NOUL}} | fields


def encode(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False).encode("utf-8", "surrogatepass")


def accept(value: Any) -> SystemOneRequest:
    return DIALECT.validate(DIALECT.decode(encode(value), JSON)).request


def refuse(sent: Any, content_type: str | None = JSON) -> tuple[int, Any]:
    """(status, detail); bytes are sent as they are."""
    raw = sent if isinstance(sent, bytes) else encode(sent)
    try:
        DIALECT.validate(DIALECT.decode(raw, content_type))
    except (ValidationError, OstrakaError) as bad:
        problem = DIALECT.refuse(bad)
        return problem.status, json.loads(problem.body)["detail"]
    raise AssertionError("accepted")


def items(sent: Any, content_type: str | None = JSON) -> list[dict[str, Any]]:
    status, detail = refuse(sent, content_type)
    assert status == 422
    return detail


def nest(depth: int, kind: type = list, inside: Any = 1) -> Any:
    """`inside` in that many containers."""
    for _ in range(depth):
        inside = [inside] if kind is list else {"k": inside}
    return inside
