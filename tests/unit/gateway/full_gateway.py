"""A gateway that lets nobody in, and what it says to one request."""

import asyncio
import json
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

from starlette.requests import Request

from ostraka_gateway.auth import Keys, _digest
from ostraka_gateway.decision import Gateway, respond
from ostraka_gateway.large_bodies import LARGE_BODY_BYTES, LargeBodies
from ostraka_gateway.metrics import Metrics
from ostraka_gateway.rate_limit import RateLimit
from ostraka_shared.errors import Overloaded

MOST = 2 * LARGE_BODY_BYTES
MESSAGE = "9.0 s of work are ahead: an answer may take 10.8 s, and the deadline is 2.0 s"
KEY = {"authorization": "Bearer secret"}


class Exchange:
    """One request to a gateway that lets nobody in, and would fail at the first look at what is asked."""

    def __init__(self, rate_limit=None):
        self.gateway = Gateway(
            "gateway",
            None,
            None,
            SimpleNamespace(metrics=Metrics(), single_flight=SimpleNamespace(refusal_of_all=self.refuse)),
            ThreadPoolExecutor(1),
            LargeBodies(MOST),
            9000,
            "2026-01-01",
            body_bytes=MOST,
            keys=Keys((("key", _digest("secret")),)),
            rate_limit=rate_limit or RateLimit(0, 0),
        )
        self.left_s = []

    def refuse(self, deadline):
        self.left_s.append(deadline - asyncio.get_running_loop().time())
        return Overloaded(MESSAGE, 8.8)

    async def ask(self, dialect, body=b"{}", **headers):
        self.received = 0

        async def receive():
            self.received += 1
            return {"type": "http.request", "body": body, "more_body": False}

        given = KEY | {"content-length": str(len(body)), "x-deadline-ms": "2000"} | headers
        listed = [(name.encode(), value.encode()) for name, value in given.items()]
        scope = {"type": "http", "method": "POST", "path": "/", "query_string": b"", "headers": listed, "client": None}
        response = await respond(self.gateway, dialect, Request(scope, receive))
        return response.status_code, json.loads(response.body), dict(response.headers)
