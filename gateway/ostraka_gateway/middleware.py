"""Around every response: its request id, its place in the metrics, and JSON even where the server itself failed."""

import asyncio
import secrets
from collections.abc import Callable
from typing import Any

import structlog
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ostraka_gateway.metrics import Metrics
from ostraka_gateway.problems import Problem, from_error
from ostraka_shared.errors import Draining

log = structlog.get_logger()

RETRY_ELSEWHERE_S = 1.0
REQUEST_ID_HEADER = "x-typesafe-request-id"
SYSTEM_ONE_PATHS = ("/v1/systemone", "/systemone", "/api/v1/systemone", "/api/alpha/decisions")
"""The hosted API's, and those of services that resell it."""
ROUTES = frozenset(
    {*SYSTEM_ONE_PATHS, "/v1/decisions", "/v1/models", "/health", "/livez", "/readyz", "/metrics", "/openapi.json"}
)
"""Metric labels; any other path is "other", so that a scanner cannot multiply the series."""


class Envelope:
    """Plain ASGI: starlette's BaseHTTPMiddleware would start a task for each request."""

    def __init__(self, app: ASGIApp, metrics: Metrics, refuse: Callable[[Exception], Problem] = from_error) -> None:
        self._app = app
        self._refuse = refuse
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request_id = make_request_id()
        scope.setdefault("state", {})["request_id"] = request_id
        status = 0

        async def send_marked(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message.get("headers", ()), (REQUEST_ID_HEADER.encode(), request_id.encode())]
            await send(message)

        try:
            await self._app(scope, receive, send_marked)
        except asyncio.CancelledError as ended:
            if not status:
                await self._send_problem(ended, scope["state"], send_marked)
            # uvicorn has said how many it cancels, and would log a traceback for each that raises.
            if not _is_cancelled():
                raise
        except Exception as bad:
            if status:
                raise  # half a response is out: only a closed connection tells the client
            await self._send_problem(bad, scope["state"], send_marked)
        finally:
            count(self._metrics, scope, status)

    async def _send_problem(self, bad: BaseException, state: dict[str, Any], send: Send) -> None:
        """Cancelled is what the server's end does to a request that the grace period was too short for."""
        if isinstance(bad, asyncio.CancelledError):
            problem = self._refuse(Draining("this server stopped before the answer was there", RETRY_ELSEWHERE_S))
        else:
            log.error("request_crashed", request=state["request_id"], key=state.get("key"), exc_info=bad)
            problem = self._refuse(bad)  # type: ignore[arg-type]
        headers = [(name.encode(), value.encode()) for name, value in problem.headers.items()]
        await send({"type": "http.response.start", "status": problem.status, "headers": headers})
        await send({"type": "http.response.body", "body": problem.body})


def make_request_id() -> str:
    return f"req_{secrets.token_hex(12)}"


def count(metrics: Metrics, scope: Scope, status: int) -> None:
    """An answered request."""
    route = scope["path"] if scope["path"] in ROUTES else "other"
    metrics.requests.labels(route, str(status)).inc()
    if key := scope["state"].get("key"):
        metrics.key_requests.labels(key, str(status)).inc()


def _is_cancelled() -> bool:
    """Rather than something that was waited for, by a fault of ours."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
