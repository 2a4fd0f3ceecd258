"""The HTTP edge: which path does what. Everything it needs comes in as a Gateway."""

from collections.abc import Awaitable, Callable, Mapping, Sequence

from fastapi import FastAPI, Request, Response
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from ostraka_gateway import problems, status
from ostraka_gateway.compression import Compression
from ostraka_gateway.decision import JSON, Gateway, respond, to_response
from ostraka_gateway.dialect import Dialect, Dialects, Refusals, SystemOneDialect
from ostraka_gateway.gate import Gate, all_but, only
from ostraka_gateway.jevos import problems as jevos_problems
from ostraka_gateway.jevos.dialect import JevosDialect
from ostraka_gateway.metrics import CONTENT_TYPE
from ostraka_gateway.middleware import SYSTEM_ONE_PATHS, Envelope
from ostraka_gateway.openai_decisions.dialect import DecisionsDialect, EitherDialect
from ostraka_gateway.openapi.document import encoded
from ostraka_gateway.served_model import ServedModel

READING = ["GET", "HEAD"]
"""Uptime monitors ask for heads alone; what GET says of a path holds for both."""


class Edge(FastAPI):
    """Decisions pass by the framework's routes and its own middleware, which would be a third of what a refusal costs:
    at their paths a POST is theirs, and all else is for the routes."""

    def __init__(self, around: Sequence[Middleware], decisions: Mapping[str, ASGIApp]) -> None:
        # The routes take the raw request: FastAPI's own document would know nothing of what they take and give.
        super().__init__(docs_url=None, redoc_url=None, openapi_url=None, redirect_slashes=False, middleware=around)
        self._decisions = {path: _surround(decide, around) for path, decide in decisions.items()}
        # Also for POST, though only another method at such a path is ever looked up here: 405, and what is allowed.
        self.router.routes += [Route(path, decide, methods=["POST"]) for path, decide in decisions.items()]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["method"] == "POST" and (decide := self._decisions.get(scope["path"])):
            await decide(scope, receive, send)
        else:
            await super().__call__(scope, receive, send)


class Decide:
    """The application at a path where decisions are asked for."""

    def __init__(self, gateway: Gateway, make_dialect: Callable[[], Dialect]) -> None:
        self._gateway = gateway
        self._make_dialect = make_dialect

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        response = await respond(self._gateway, self._make_dialect(), Request(scope, receive))
        await response(scope, receive, send)


def create_app(gateway: Gateway, compat: str = "default") -> FastAPI:
    return _create_jevos_app(gateway) if compat == "jevos" else _create_default_app(gateway)


def dialects_of(model: ServedModel, compat: str = "default") -> Dialects:
    if compat == "jevos":  # a path is either exact or unknown
        jevos = JevosDialect(model.name, model.limits)
        return {"/v1/systemone": lambda: jevos}
    dialect, openai = SystemOneDialect(model.name, model.limits), DecisionsDialect(model.name, model.limits)
    return dict.fromkeys(SYSTEM_ONE_PATHS, lambda: dialect) | {"/v1/decisions": lambda: EitherDialect(dialect, openai)}


def _decisions(gateway: Gateway, compat: str) -> dict[str, ASGIApp]:
    return {path: Decide(gateway, make) for path, make in dialects_of(gateway.model, compat).items()}


def _create_default_app(gateway: Gateway) -> FastAPI:
    decisions = _decisions(gateway, "default")
    app = Edge(_around(gateway, all_but(decisions), problems), decisions)
    app.add_exception_handler(HTTPException, _unrouted(problems))
    for path, page in status.PAGES.items():
        app.add_api_route(path, _page(gateway, page), methods=READING)
    app.add_api_route("/metrics", _metrics(gateway), methods=READING)
    app.add_api_route("/openapi.json", _document(gateway), methods=READING)
    return app


def _create_jevos_app(gateway: Gateway) -> FastAPI:
    """The three paths jev has, and our own for probes and metrics."""
    around = _around(gateway, only("/v1/models", "/metrics"), jevos_problems)
    app = Edge(around, _decisions(gateway, "jevos"))
    app.add_exception_handler(HTTPException, _unrouted(jevos_problems))
    for path, page in status.JEVOS_PAGES.items():
        app.add_api_route(path, _page(gateway, page), methods=READING)
    app.add_api_route("/metrics", _metrics(gateway), methods=READING)
    return app


def _around(gateway: Gateway, needs_key: Callable[[str, str], bool], refusals: Refusals) -> list[Middleware]:
    """The outermost first: a refusal of the gate is compressed, counted and given its request id too."""
    return [
        Middleware(Envelope, metrics=gateway.cluster.metrics, refuse=refusals.from_error),
        Middleware(Compression),
        Middleware(Gate, keys=gateway.keys, needs_key=needs_key, refuse=refusals.from_error),
    ]


def _surround(app: ASGIApp, around: Sequence[Middleware]) -> ASGIApp:
    for layer in reversed(around):
        app = layer.cls(app, *layer.args, **layer.kwargs)
    return app


def _page(gateway: Gateway, describe: Callable[[Gateway], Awaitable[status.Page]]) -> Callable[[], Awaitable[Response]]:
    async def page() -> Response:
        found = await describe(gateway)
        return Response(found.body, status_code=found.status, media_type=JSON)

    return page


def _document(gateway: Gateway) -> Callable[[], Awaitable[Response]]:
    body = encoded(gateway.model.name, gateway.model.limits)

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
