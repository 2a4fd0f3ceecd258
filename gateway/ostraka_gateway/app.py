"""The HTTP edge: routes, and what each does in order. Everything it needs comes in as a Gateway."""

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from fastapi import FastAPI, Request, Response
from pydantic import ValidationError
from starlette.exceptions import HTTPException

from ostraka_gateway import problems, status
from ostraka_gateway.cluster import Cluster
from ostraka_gateway.dispatcher import Reply
from ostraka_gateway.metrics import CONTENT_TYPE
from ostraka_gateway.middleware import Envelope
from ostraka_gateway.prompts import TokenizedRequest
from ostraka_gateway.schemas import SystemOneRequest
from ostraka_gateway.served_model import ServedModel
from ostraka_gateway.timeline import Timeline
from ostraka_shared.errors import BodyTooLarge, Draining, InvalidRequest, OstrakaError

BODY_BYTES_MAX = 16 * 1024 * 1024
"""A state of 256,000 bytes and 1,024 questions of 8,000 characters with room for JSON's own."""
DEADLINE_HEADER = "x-deadline-ms"
DEADLINE_MS_MAX = 600_000
JSON = "application/json"


@dataclass(slots=True)
class Gateway:
    """One gateway's parts, and whether it is leaving."""

    model: ServedModel
    cluster: Cluster
    tokenizer_pool: ThreadPoolExecutor
    deadline_ms: int
    started: str
    is_draining: bool = False


def create_app(gateway: Gateway) -> FastAPI:
    app = FastAPI(title="Ostraka", version="0.1.0", docs_url=None, redoc_url=None)
    app.add_middleware(Envelope, metrics=gateway.cluster.metrics)
    app.add_exception_handler(HTTPException, _http_exception)
    app.add_api_route("/v1/systemone", _systemone(gateway), methods=["POST"])
    for path, describe in status.PAGES.items():
        app.add_api_route(path, _page(gateway, describe), methods=["GET"])
    app.add_api_route("/metrics", _metrics(gateway), methods=["GET"])
    return app


def _systemone(gateway: Gateway) -> Callable[[Request], Awaitable[Response]]:
    async def systemone(request: Request) -> Response:
        timeline = Timeline()
        try:
            return await _decide(gateway, request, timeline)
        except ValidationError as bad:
            return _respond(problems.from_validation(bad))
        except OstrakaError as bad:
            return _respond(problems.from_error(bad))

    return systemone


async def _decide(gateway: Gateway, http: Request, timeline: Timeline) -> Response:
    deadline = asyncio.get_running_loop().time() + _deadline_ms(http, gateway.deadline_ms) / 1000
    body = await _read_body(http)
    timeline.mark("parse")
    request = gateway.model.parse(body)
    timeline.mark("validate")
    tokens = await _tokenize(gateway, request)
    timeline.mark("tokenize")
    reply = await _ask(gateway, http.state.request_id, tokens, deadline)
    timeline.mark_asked(reply.queue_ms, reply.inference_ms)
    answer = gateway.model.respond(request, tokens, reply.p_yes)
    timeline.mark("respond")
    headers = {"Server-Timing": timeline.finish()}
    for stage, seconds in timeline.seconds.items():
        gateway.cluster.metrics.seconds.labels(stage).observe(seconds)
    return Response(answer, media_type=JSON, headers=headers)


async def _tokenize(gateway: Gateway, request: SystemOneRequest) -> TokenizedRequest:
    """In a thread: the tokenizer gives up the GIL, and a long text must not hold the event loop."""
    loop = asyncio.get_running_loop()
    return await loop.run_in_executor(gateway.tokenizer_pool, gateway.model.tokenize, request)


async def _ask(gateway: Gateway, request_id: str, tokens: TokenizedRequest, deadline: float) -> Reply:
    if not tokens.suffixes:  # a score of one level needs no model
        return Reply((), 0.0, 0.0)
    if gateway.is_draining:
        raise Draining("this server is shutting down", retry_after_s=1.0)
    return await gateway.cluster.dispatcher.ask(request_id, tokens.prefix, tokens.suffixes, deadline)


async def _read_body(http: Request) -> bytes:
    """Refused as soon as it is too long, whatever it says of its length."""
    if int(http.headers.get("content-length") or 0) > BODY_BYTES_MAX:
        raise _too_large()
    body = bytearray()
    async for chunk in http.stream():
        body += chunk
        if len(body) > BODY_BYTES_MAX:
            raise _too_large()
    return bytes(body)


def _too_large() -> BodyTooLarge:
    return BodyTooLarge(f"a request's body should have at most {BODY_BYTES_MAX} bytes")


def _deadline_ms(http: Request, default_ms: int) -> int:
    text = http.headers.get(DEADLINE_HEADER)
    if text is None:
        return default_ms
    if not (text.isascii() and text.isdigit() and 1 <= int(text) <= DEADLINE_MS_MAX):
        raise InvalidRequest(
            f"{DEADLINE_HEADER} should be a whole number of milliseconds from 1 to {DEADLINE_MS_MAX}",
            loc=("header", DEADLINE_HEADER),
        )
    return int(text)


def _page(gateway: Gateway, describe: Callable[[Any], status.Page]) -> Callable[[], Awaitable[Response]]:
    async def page() -> Response:
        found = describe(gateway)
        return Response(found.body, status_code=found.status, media_type=JSON)

    return page


def _metrics(gateway: Gateway) -> Callable[[], Awaitable[Response]]:
    async def metrics() -> Response:
        return Response(gateway.cluster.metrics.render(), headers={"content-type": CONTENT_TYPE})

    return metrics


async def _http_exception(_: Request, bad: Exception) -> Response:
    """Starlette's own: an unknown path, or a method the path does not have."""
    assert isinstance(bad, HTTPException)  # noqa: S101  for mypy: handlers are typed loosely
    if bad.status_code == 405:
        return _respond(problems.method_not_allowed((bad.headers or {}).get("Allow", "")))
    return _respond(problems.not_found())


def _respond(problem: problems.Problem) -> Response:
    return Response(problem.body, status_code=problem.status, headers=problem.headers)
