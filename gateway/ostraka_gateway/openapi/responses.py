"""The parts that paths share: headers, and one response for each status that refuses."""

from collections.abc import Mapping
from typing import Any

from ostraka_gateway.problems import INVALID_STATUS, STATUS

Json = dict[str, Any]

JSON = "application/json"
HEADERS: Json = {
    "RequestId": {
        "description": "Names this request in the server's log",
        "schema": {"type": "string", "pattern": "^req_[0-9a-f]{24}$"},
        "required": True,
    },
    "ServerTiming": {
        "description": "In milliseconds: parse, validate, tokenize, queue, inference, respond, total",
        "schema": {"type": "string"},
        "required": True,
    },
    "RetryAfterMs": {
        "description": "When a retry is likely to succeed, in milliseconds",
        "schema": {"type": "integer", "minimum": 0},
    },
    "Authenticate": {"description": "The scheme", "schema": {"const": "Bearer"}, "required": True},
    "RetryAfter": {"description": "The same in whole seconds", "schema": {"type": "integer", "minimum": 0}},
}
SAID = {
    "400": "A model that is not served, or not what its Content-Encoding says",
    "401": "No key, or a wrong one",
    "404": "A model that is not served",
    "408": "The request took too long to arrive",
    "413": "A body with too many bytes",
    "415": "An encoding or a type of body that is not taken",
    "422": "A field is wrong; `loc` says which",
    "429": "A rate limit is reached",
    "500": "The model failed, or this server did",
    "503": "No worker is ready, or this server is leaving or has too many connections",
    "504": "No answer within the deadline",
    "529": "The queue is full",
}
RETRYABLE = frozenset({"429", "503", "504", "529"})


def content(schemas: str | tuple[str, ...], examples: Mapping[str, object] | None = None) -> Json:
    """A body of this schema, or of any of these."""
    refs = [{"$ref": f"#/components/schemas/{s}"} for s in ([schemas] if isinstance(schemas, str) else schemas)]
    body: Json = {"schema": refs[0] if len(refs) == 1 else {"anyOf": refs}}
    return body | ({"examples": dict(examples)} if examples else {})


def answered(body: Json, description: str = "The answer", *, is_timed: bool = True) -> Json:
    headers = {"x-typesafe-request-id": {"$ref": "#/components/headers/RequestId"}}
    if is_timed:
        headers["Server-Timing"] = {"$ref": "#/components/headers/ServerTiming"}
    return {"description": description, "headers": headers, "content": {JSON: body}}


def _refusal(status: str, *schemas: str) -> Json:
    kinds = sorted({kind for number, kind in STATUS.values() if str(number) == status})
    named = f" (`{'`, `'.join(kinds)}`)" if kinds else ""
    response = answered(content(schemas), SAID[status] + named, is_timed=False)
    if status in RETRYABLE:
        response["headers"]["retry-after-ms"] = {"$ref": "#/components/headers/RetryAfterMs"}
        response["headers"]["retry-after"] = {"$ref": "#/components/headers/RetryAfter"}
    if status == "401":
        response["headers"]["www-authenticate"] = {"$ref": "#/components/headers/Authenticate"}
    return response


def _plain(status: str) -> str:
    return "InvalidProblem" if status == str(INVALID_STATUS) else "Problem"


ONE_OF_BOTH = {status: f"{status}-either" for status in ("400", "404", "429", "500", "503", "504", "529")}
"""Once a list of questions was read they are refused in OpenAI's form; before, and with an object, in System One's."""
RESPONSES: Json = {
    **{status: _refusal(status, _plain(status)) for status in SAID if status != "404"},
    **{name: _refusal(status, _plain(status), "DecisionsProblem") for status, name in ONE_OF_BOTH.items()},
    "404-either": _refusal("404", "DecisionsProblem"),
    "400-either": _refusal("400", "Problem", "DecisionsProblem")
    | {"description": "In OpenAI's form: a field is wrong, `param` says which. In System One's: as there"},
}
