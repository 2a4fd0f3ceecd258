"""The document itself: each path, what it takes, every status it gives. What bodies look like is in the schemas."""

import json
import re
from functools import cache
from importlib.metadata import version
from typing import Any

from pydantic.json_schema import models_json_schema

from ostraka_gateway.dialect import ALIAS_PREFIXES
from ostraka_gateway.limits import DEADLINE_MS_MAX, Limits
from ostraka_gateway.middleware import SYSTEM_ONE_PATHS
from ostraka_gateway.openai_decisions.schemas import DecisionsRequest
from ostraka_gateway.openapi import examples, shapes
from ostraka_gateway.openapi.responses import HEADERS, ONE_OF_BOTH, RESPONSES, answered, content
from ostraka_gateway.schemas import QUESTION_ID_CHARS_MAX, SystemOneRequest

Json = dict[str, Any]

VERSION = version("ostraka")
REF = "#/components/schemas/{model}"
DESCRIPTION = (
    "Where keys are set, all but the probes want one. Bodies may be encoded with zstd, gzip or deflate. What is not "
    "HTTP, comes in another transfer coding than chunked, has more than 64 kB of headers or does not arrive in time "
    "gets a 400, 501, 431 or 408 and a closed connection: in the usual form, but without a request id, because there "
    "was no request yet."
)
DECISION_STATUSES = ("400", "401", "408", "413", "415", "422", "429", "500", "503", "504", "529")
PAGE_STATUSES = ("401", "503")
SHAPES = (
    shapes.SystemOneResponse,
    shapes.DecisionsResponse,
    shapes.InvalidProblem,
    shapes.Problem,
    shapes.DecisionsProblem,
    shapes.ModelList,
    shapes.Alive,
    shapes.Readiness,
    shapes.Health,
)


@cache
def encoded(model_name: str, limits: Limits) -> bytes:
    """`describe`, as it is sent. It takes 15 ms: as long as all else that a forked gateway makes before it serves."""
    return json.dumps(describe(model_name, limits), separators=(",", ":")).encode()


def describe(model_name: str, limits: Limits) -> Json:
    """Of a server with this model and these limits."""
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Ostraka",
            "version": VERSION,
            "summary": "Typed questions about a text, answered with probabilities",
            "description": DESCRIPTION,
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": "/"}],
        "tags": [{"name": "decisions"}, {"name": "server"}],
        "security": [{}, {"key": []}],
        "paths": _paths(),
        "components": {
            "schemas": _schemas(model_name, limits),
            "responses": RESPONSES,
            "headers": HEADERS,
            "parameters": {"Deadline": _deadline()},
            "securitySchemes": {
                "key": {"type": "http", "scheme": "bearer", "description": "Only where the server was given keys"}
            },
        },
    }


def _paths() -> Json:
    first, *others = SYSTEM_ONE_PATHS
    return {
        first: {"post": _system_one("systemone", "Answer questions about a state")},
        "/v1/decisions": {"post": _decisions()},
        **{path: {"post": _system_one("at" + path.replace("/", "_"), f"The same as {first}")} for path in others},
        "/v1/models": {"get": _page("models", "The models served", "ModelList")},
        "/health": {"get": _probe("health", "The server, its model, its workers", "Health")},
        "/livez": {"get": _probe("livez", "Whether the process answers", "Alive")},
        "/readyz": {"get": _readyz()},
        "/metrics": {"get": _metrics()},
        "/openapi.json": {"get": _page("openapi", "This document", None)},
    }


def _system_one(operation_id: str, summary: str) -> Json:
    body = content("SystemOneRequest", examples.SYSTEM_ONE_REQUESTS)
    answer = content("SystemOneResponse", examples.SYSTEM_ONE_RESPONSES)
    return {
        "operationId": operation_id,
        "summary": summary,
        "tags": ["decisions"],
        "parameters": [{"$ref": "#/components/parameters/Deadline"}],
        "requestBody": {"required": True, "content": {"application/json": body}},
        "responses": {"200": answered(answer), **_refused(*DECISION_STATUSES)},
    }


def _decisions() -> Json:
    requests = examples.SYSTEM_ONE_REQUESTS | examples.DECISIONS_REQUESTS
    responses = examples.SYSTEM_ONE_RESPONSES | examples.DECISIONS_RESPONSES
    body = content(("SystemOneRequest", "DecisionsRequest"), requests)
    return {
        "operationId": "decisions",
        "summary": "The same, in either of two forms",
        "description": "Where `questions` is an object the body is that of /v1/systemone, and so are answers and "
        "errors. Where it is a list, all are those of OpenAI's Decisions API; images are refused.",
        "tags": ["decisions"],
        "parameters": [{"$ref": "#/components/parameters/Deadline"}],
        "requestBody": {"required": True, "content": {"application/json": body}},
        "responses": {
            "200": answered(content(("SystemOneResponse", "DecisionsResponse"), responses)),
            **_refused(*(ONE_OF_BOTH.get(status, status) for status in (*DECISION_STATUSES, "404"))),
        },
    }


def _page(operation_id: str, summary: str, schema: str | None, *statuses: str) -> Json:
    body = content(schema) if schema else {"schema": {"type": "object"}}
    return {
        "operationId": operation_id,
        "summary": summary,
        "tags": ["server"],
        "responses": {"200": answered(body, is_timed=False), **_refused(*(statuses or PAGE_STATUSES))},
    }


def _probe(operation_id: str, summary: str, schema: str) -> Json:
    """Never refused: no key is asked for, no connection is too many."""
    page = _page(operation_id, summary, schema)
    return page | {"security": [{}], "responses": {"200": page["responses"]["200"]}}


def _readyz() -> Json:
    probe = _probe("readyz", "Whether requests should be sent here", "Readiness")
    unready = answered(content("Readiness"), "Starting, draining, or without a worker", is_timed=False)
    return probe | {"responses": probe["responses"] | {"503": unready}}


def _metrics() -> Json:
    page = _page("metrics", "What Prometheus reads", None)
    text = answered({}, "Prometheus's text format", is_timed=False)
    return page | {
        "responses": page["responses"] | {"200": text | {"content": {"text/plain": {"schema": {"type": "string"}}}}}
    }


def _refused(*names: str) -> Json:
    """A component's name begins with its status."""
    return {name[:3]: {"$ref": f"#/components/responses/{name}"} for name in sorted(names)}


def _deadline() -> Json:
    return {
        "name": "x-deadline-ms",
        "in": "header",
        "description": "After how many milliseconds nobody waits for the answer any more: a 504 comes instead",
        "schema": {"type": "integer", "minimum": 1, "maximum": DEADLINE_MS_MAX},
    }


def _schemas(model_name: str, limits: Limits) -> Json:
    taken = [(model, "validation") for model in (SystemOneRequest, DecisionsRequest)]
    given = [(model, "serialization") for model in SHAPES]
    _, generated = models_json_schema([*taken, *given], ref_template=REF)  # type: ignore[list-item]
    schemas: Json = generated["$defs"]
    _add_limits(schemas, model_name, limits)
    return schemas


def _add_limits(schemas: Json, model_name: str, limits: Limits) -> None:
    """What validators check that pydantic cannot tell from them."""
    prefixes = "|".join(re.escape(prefix) for prefix in ALIAS_PREFIXES)
    for request in ("SystemOneRequest", "DecisionsRequest"):
        schemas[request]["properties"]["model"]["pattern"] = f"^({re.escape(model_name)}$|{prefixes})"
    questions = schemas["SystemOneRequest"]["properties"]["questions"]
    questions["maxProperties"] = limits.request_questions
    questions["propertyNames"] = {"pattern": r"\S", "maxLength": QUESTION_ID_CHARS_MAX}
    schemas["Choice"]["properties"]["criteria"]["maxProperties"] = limits.choice_options
    schemas["Score"]["properties"]["criteria"]["maxItems"] = limits.score_levels
