import asyncio
import json
import re

import pytest

from ostraka_gateway.metrics import Metrics
from ostraka_gateway.middleware import REQUEST_ID_HEADER, Envelope
from ostraka_shared.errors import Overloaded
from tests.waiting import let_run


def start(status=200, headers=()):
    return {"type": "http.response.start", "status": status, "headers": list(headers)}


BODY = {"type": "http.response.body", "body": b"hello"}


class Exchange:
    """One call of the middleware around `app`; what it sent, as a server would see it."""

    def __init__(self):
        self.metrics = Metrics()
        self.sent = []

    async def run(self, app, path="/v1/systemone", kind="http"):
        self.scope = {"type": kind, "path": path}

        async def send(message):
            self.sent.append(message)

        await Envelope(app, self.metrics)(self.scope, None, send)
        return self

    @property
    def headers(self):
        return {name.decode(): value.decode() for name, value in self.sent[0]["headers"]}

    def counted(self, route, status):
        return self.metrics.requests.labels(route, status)._value.get()


def app_of(*messages, then=None):
    async def app(scope, _, send):
        for message in messages:
            await send(message)
        if then:
            raise then

    return app


@pytest.fixture
def exchange():
    return Exchange()


async def test_a_response_gets_its_request_id_and_is_counted(exchange):
    await exchange.run(app_of(start(200, [(b"content-type", b"text/plain")]), BODY))
    assert exchange.sent[0]["status"] == 200
    assert exchange.headers["content-type"] == "text/plain"
    assert exchange.sent[1] == BODY
    assert exchange.counted("/v1/systemone", "200") == 1
    assert exchange.headers[REQUEST_ID_HEADER] == exchange.scope["state"]["request_id"]
    assert re.fullmatch("req_[0-9a-f]{24}", exchange.headers[REQUEST_ID_HEADER])


async def test_a_response_without_headers_gets_one_too(exchange):
    await exchange.run(app_of({"type": "http.response.start", "status": 204}))
    assert list(exchange.headers) == [REQUEST_ID_HEADER]


async def test_ids_differ():
    app = app_of(start(), BODY)
    ids = {(await Exchange().run(app)).headers[REQUEST_ID_HEADER] for _ in range(100)}
    assert len(ids) == 100


async def test_the_state_of_the_scope_is_kept(exchange):
    async def app(scope, receive, send):
        assert scope["state"]["request_id"].startswith("req_")
        await send(start())

    await exchange.run(app)
    assert len(exchange.sent) == 1


@pytest.mark.parametrize("path", ["/admin", "/v1/systemone/", "/v1/systemone/x", "", "/METRICS"])
async def test_unknown_paths_are_one_series(exchange, path):
    await exchange.run(app_of(start(404), BODY), path)
    assert exchange.counted("other", "404") == 1


async def test_a_crash_before_the_response_is_a_500_in_json(exchange):
    await exchange.run(app_of(then=RuntimeError("the secret")))
    begun, body = exchange.sent
    assert begun["status"] == 500
    assert exchange.headers["content-type"] == "application/json"
    assert REQUEST_ID_HEADER in exchange.headers
    assert json.loads(body["body"])["detail"]["error_type"] == "internal_error"
    assert b"secret" not in body["body"]
    assert exchange.counted("/v1/systemone", "500") == 1


async def test_an_error_of_ours_keeps_its_status(exchange):
    await exchange.run(app_of(then=Overloaded("full", retry_after_s=2.0)))
    assert exchange.sent[0]["status"] == 529
    assert exchange.headers["retry-after"] == "2"


async def test_a_crash_after_the_response_began_closes_the_connection(exchange):
    with pytest.raises(RuntimeError, match="half"):
        await exchange.run(app_of(start(), then=RuntimeError("half")))
    assert len(exchange.sent) == 1
    assert exchange.counted("/v1/systemone", "200") == 1


@pytest.mark.parametrize("kind", ["websocket", "lifespan"])
async def test_other_protocols_pass_untouched(exchange, kind):
    await exchange.run(app_of({"type": f"{kind}.close"}), kind=kind)
    assert exchange.sent == [{"type": f"{kind}.close"}]
    assert "state" not in exchange.scope


@pytest.mark.parametrize("before", [(), (start(),)], ids=["unanswered", "half answered"])
async def test_the_servers_end_is_an_answer_or_none_and_no_error_of_the_request(exchange, before):
    """uvicorn logs a traceback for whatever is raised, and closes the connection of who has half an answer."""

    async def app(scope, _, send):
        for message in before:
            await send(message)
        await asyncio.Event().wait()

    asked = asyncio.create_task(exchange.run(app))
    await let_run()
    asked.cancel()
    await asked
    assert [message.get("status") for message in exchange.sent] == ([200] if before else [503, None])


async def test_what_was_cancelled_inside_is_a_fault_of_ours(exchange):
    with pytest.raises(asyncio.CancelledError):
        await exchange.run(app_of(then=asyncio.CancelledError()))
    assert exchange.sent[0]["status"] == 503
