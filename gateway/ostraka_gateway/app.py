"""The HTTP edge: which path does what. Everything it needs comes in as a Gateway."""

import json
from collections.abc import Awaitable, Callable

from fastapi import FastAPI, Request, Response
from starlette.exceptions import HTTPException

from ostraka_gateway import problems, status
from ostraka_gateway.compression import Compression
from ostraka_gateway.decision import JSON, Gateway, respond, to_response
from ostraka_gateway.dialect import Dialect, Refusals, SystemOneDialect
from ostraka_gateway.gate import Gate, all_but, only
from ostraka_gateway.jevos import problems as jevos_problems
from ostraka_gateway.jevos.dialect import JevosDialect
from ostraka_gateway.metrics import CONTENT_TYPE
from ostraka_gateway.middleware import SYSTEM_ONE_PATHS, Envelope
from ostraka_gateway.openai_decisions.dialect import DecisionsDialect, EitherDialect
from ostraka_gateway.openapi.document import describe

READING = ["GET", "HEAD"]
"""Uptime monitors ask for heads alone; what GET says of a path holds for both."""


def create_app(gateway: Gateway, compat: str = "default") -> FastAPI:
    return _create_jevos_app(gateway) if compat == "jevos" else _create_default_app(gateway)


def _create_default_app(gateway: Gateway) -> FastAPI:
    # The routes take the raw request: FastAPI's own document would know nothing of what they take and give.
    app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None, redirect_slashes=False)
    _surround(app, gateway, all_but({*SYSTEM_ONE_PATHS, "/v1/decisions"}), problems)
    app.add_exception_handler(HTTPException, _unrouted(problems))
    dialect = SystemOneDialect(gateway.model.name, gateway.model.limits)
    # Starlette's routes: bodies are the dialects' matter, so FastAPI has no dependencies to solve for each request.
    for path in SYSTEM_ONE_PATHS:
        app.add_route(path, _decisions(gateway, dialect), methods=["POST"])
    app.add_route("/v1/decisions", _either(gateway), methods=["POST"])
    for path, page in status.PAGES.items():
        app.add_api_route(path, _page(gateway, page), methods=READING)
    app.add_api_route("/metrics", _metrics(gateway), methods=READING)
    app.add_api_route("/openapi.json", _document(gateway), methods=READING)
    return app


def _create_jevos_app(gateway: Gateway) -> FastAPI:
    """The three paths jev has, and our own for probes and metrics; a path is either exact or unknown."""
    app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None, redirect_slashes=False)
    _surround(app, gateway, only("/v1/models", "/metrics"), jevos_problems)
    app.add_exception_handler(HTTPException, _unrouted(jevos_problems))
    dialect = JevosDialect(gateway.model.name, gateway.model.limits)
    app.add_route("/v1/systemone", _decisions(gateway, dialect), methods=["POST"])
    for path, page in status.JEVOS_PAGES.items():
        app.add_api_route(path, _page(gateway, page), methods=READING)
    app.add_api_route("/metrics", _metrics(gateway), methods=READING)
    return app


def _surround(app: FastAPI, gateway: Gateway, needs_key: Callable[[str, str], bool], refusals: Refusals) -> None:
    """The innermost first: a refusal of the gate is compressed, counted and given its request id too."""
    app.add_middleware(Gate, keys=gateway.keys, needs_key=needs_key, refuse=refusals.from_error)
    app.add_middleware(Compression)
    app.add_middleware(Envelope, metrics=gateway.cluster.metrics, refuse=refusals.from_error)


def _decisions(gateway: Gateway, dialect: Dialect) -> Callable[[Request], Awaitable[Response]]:
    async def decide(request: Request) -> Response:
        return await respond(gateway, dialect, request)

    return decide


def _either(gateway: Gateway) -> Callable[[Request], Awaitable[Response]]:
    model = gateway.model
    system_one, openai = SystemOneDialect(model.name, model.limits), DecisionsDialect(model.name, model.limits)

    async def decide(request: Request) -> Response:
        return await respond(gateway, EitherDialect(system_one, openai), request)

    return decide


def _page(gateway: Gateway, describe: Callable[[Gateway], Awaitable[status.Page]]) -> Callable[[], Awaitable[Response]]:
    async def page() -> Response:
        found = await describe(gateway)
        return Response(found.body, status_code=found.status, media_type=JSON)

    return page


def _document(gateway: Gateway) -> Callable[[], Awaitable[Response]]:
    body = json.dumps(describe(gateway.model.name, gateway.model.limits), separators=(",", ":")).encode()

    async def document() -> Response:
        return Response(body, media_type=JSON)

    return document


def _metrics(gateway: Gateway) -> Callable[[], Awaitable[Response]]:
    async def metrics() -> Response:
        cluster = await status.cluster_figures(gateway)
        return Response(gateway.cluster.metrics.render(cluster), headers={"content-type": CONTENT_TYPE})

    return metrics


def _unrouted(refusals: Refusals) -> Callable[[Request, Exception], Awaitable[Response]]:
    """For Starlette's own: an unknown path, or a method the path does not have."""

    async def refuse(http: Request, bad: Exception) -> Response:
        assert isinstance(bad, HTTPException)  # noqa: S101  for mypy: handlers are typed loosely
        allow = (bad.headers or {}).get("Allow", "") if bad.status_code == 405 else ""
        return to_response(refusals.unrouted(http.method, http.url.path, allow))

    return refuse
