"""A refusal without the application is the application's own, byte for byte; and what is the application's to answer."""

import asyncio
import gzip
import math
import re
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from types import SimpleNamespace

import pytest
from uvicorn.config import Config
from uvicorn.server import ServerState

from ostraka_gateway import early_refusal, refusing_protocol
from ostraka_gateway.app import create_app, dialects_of
from ostraka_gateway.asking import hash_of
from ostraka_gateway.auth import Keys, _digest
from ostraka_gateway.decision import Gateway
from ostraka_gateway.early_refusal import LIKELY_S, EarlyRefusal
from ostraka_gateway.large_bodies import LARGE_BODY_BYTES, LargeBodies
from ostraka_gateway.limits import DEFAULT_LIMITS
from ostraka_gateway.lull import REST_S
from ostraka_gateway.metrics import Metrics
from ostraka_gateway.rate_limit import RateLimit
from ostraka_gateway.refusing_protocol import protocol_for
from ostraka_shared.errors import Overloaded
from tests.unit.gateway.test_bounded_protocol import Transport
from tests.waiting import let_run, until

HEAD = {"host": "a", "authorization": "Bearer secret", "x-deadline-ms": "2000", "content-type": "application/json"}
REFUSED = Overloaded("the queue is 9.0 s long and the deadline 2.0 s", 8.8)


class Front:
    """A gateway that lets nobody in, behind our protocol."""

    def __init__(self):
        self.left_s, self.rests, self.refusal, self.state, self.compat = [], [], REFUSED, {}, "default"
        self.single_flight = SimpleNamespace(refusal_of_all=self.refuse, refused_all_at=math.inf)
        rest = self.rests.append
        cluster = SimpleNamespace(metrics=Metrics(), single_flight=self.single_flight, await_worker=rest)
        model = SimpleNamespace(name="m", limits=DEFAULT_LIMITS)
        pool, bodies = ThreadPoolExecutor(1), LargeBodies(2 * LARGE_BODY_BYTES)
        self.gateway = Gateway("gateway", None, model, cluster, pool, bodies, 9000, "2026-01-01")
        self.gateway.keys = Keys((("me", _digest("secret")),))

    def refuse(self, deadline):
        self.left_s.append(deadline - asyncio.get_running_loop().time())
        return self.refusal

    @property
    def refusals(self):
        return EarlyRefusal(self.gateway, dialects_of(self.gateway.model, self.compat))

    def connect(self, *, is_early=True):
        refusals = self.refusals if is_early else None
        config = Config(create_app(self.gateway, self.compat), lifespan="off", log_config=None)
        made = protocol_for(10, 100, refusals)(config, ServerState(), self.state, asyncio.get_running_loop())
        made.connection_made(Transport())
        return made

    def counted(self):
        text = self.gateway.cluster.metrics.render(EMPTY).decode()
        return [line for line in text.splitlines() if re.match(r"ostraka_(key_)?requests_total", line)]

    def close(self):
        self.gateway.large_bodies.close()
        self.gateway.tokenizer_pool.shutdown()


EMPTY = SimpleNamespace(
    gateways=(), silent=(), queued_requests=0, queued_tokens=0, degraded=(), wanted_workers=0, restarts={}, workers=()
)


@pytest.fixture
def front():
    made = Front()
    yield made
    made.close()


def request(body=b"{}", method="POST", path="/v1/systemone", **headers):
    given = HEAD | {"content-length": str(len(body))} | {n.replace("_", "-"): v for n, v in headers.items()}
    lines = [f"{method} {path} HTTP/1.1", *(f"{name}: {value}" for name, value in given.items() if value is not None)]
    return "\r\n".join([*lines, "", ""]).encode() + body


async def answer(connection, *packets):
    """What was written, but for its id; and whether without a task."""
    connection.transport.written = b""
    for packet in packets:
        connection.data_received(packet)
    is_early = not connection.tasks
    await asyncio.gather(*connection.tasks)
    connection.connection_lost(None)
    return re.sub(rb"req_[0-9a-f]{24}", b"req_", connection.transport.written), is_early


PACKED = {"content_encoding": "gzip"}


@pytest.mark.parametrize(
    ("compat", "asked", "form"),
    [
        ("default", request(), b'{"detail":{"error_type":"overloaded_error","message":"'),
        ("default", request(path="/api/alpha/decisions"), b'{"detail":{'),
        ("default", request(b'{"questions": {}}', path="/v1/decisions"), b'{"detail":{'),
        ("default", request(b'{"questions": []}', path="/v1/decisions"), b'{"error":{"message":"'),
        ("default", request(b"not JSON", path="/v1/decisions"), b'{"detail":{'),
        ("default", request(gzip.compress(b"{}"), **PACKED), b'{"detail":{'),
        ("default", request(gzip.compress(b'{"questions": []}'), path="/v1/decisions", **PACKED), b'{"error":{'),
        ("jevos", request(), b'{"detail":"the queue'),
        ("jevos", request(gzip.compress(b"{}"), **PACKED), b'{"detail":"the queue'),
    ],
)
async def test_it_is_what_the_application_says_and_counts(front, compat, asked, form):
    front.compat = compat
    expected, _ = await answer(front.connect(is_early=False), asked)
    counted = front.counted()
    told, is_early = await answer(front.connect(), asked)
    assert expected.startswith(b"HTTP/1.1 529 ")
    assert expected.partition(b"\r\n\r\n")[2].startswith(form)
    assert (told, is_early) == (expected, True)
    assert [line.replace(" 2.0", " 1.0") for line in front.counted()] == counted != []
    assert front.left_s == pytest.approx([2.0, 2.0], abs=0.5)


@pytest.mark.parametrize(
    ("compat", "asked", "status"),
    [
        ("default", request(authorization="Bearer wrong"), 401),
        ("default", request(x_deadline_ms="soon"), 422),
        ("default", request(content_encoding="zstd"), 400),
        ("default", request(x_deadline_ms="1", **PACKED), 400),
        ("default", request(gzip.compress(b"{}")[:-1], **PACKED), 400),
        ("default", request(gzip.compress(b" " * (LARGE_BODY_BYTES + 1)), **PACKED), 529),
        ("default", request(content_encoding="br"), 415),
        ("default", request(content_encoding="identity\r\ncontent-encoding: gzip"), 415),
        ("default", request(content_type="Multipart/form-data"), 415),
        ("default", request(method="PUT"), 405),
        ("default", request(b" " * (LARGE_BODY_BYTES + 1)), 529),
        ("default", request(connection="close"), 529),
        ("default", request(expect="100-continue"), 100),
        ("default", request(host=None).replace(b"HTTP/1.1", b"HTTP/1.0"), 529),
        ("jevos", request(authorization="bearer secret"), 401),
        ("jevos", request(b"not JSON"), 422),
        ("jevos", request(path="/v1/decisions"), 404),
    ],
)
async def test_what_may_have_another_answer_is_for_the_application(front, compat, asked, status):
    front.compat = compat
    front.gateway.keys = replace(front.gateway.keys, is_exact=compat == "jevos")
    expected, _ = await answer(front.connect(is_early=False), asked)
    assert await answer(front.connect(), asked) == (expected, False)
    assert expected.startswith(b"HTTP/1.1 %d " % status)


async def test_nor_is_it_asked_where_not_all_are_refused_alike(front):
    async def is_early():
        return (await answer(front.connect(), request()))[1]

    assert await is_early()
    front.single_flight.refused_all_at = asyncio.get_running_loop().time() - 2 * LIKELY_S
    assert not await is_early()
    front.single_flight.refused_all_at = math.inf
    front.state = {"is_crowded": True}
    assert not await is_early()
    front.state = {}
    with front.gateway.asking.hold(hash_of(b"{}")):
        assert not front.refusals.answer(scope(), b"{}")
    front.refusal = None
    assert not front.refusals.answer(scope(), b"{}")


@pytest.mark.parametrize("is_taken", [True, False])
async def test_a_successor_may_let_in_whom_it_takes_and_is_heard_at_once(front, is_taken):
    front.gateway.successor = SimpleNamespace(takes=lambda http: is_taken and http.client is None)
    assert bool(front.refusals.answer(scope(), b"{}")) != is_taken
    await let_run()
    assert front.rests == []
    front.gateway.successor = None
    assert front.refusals.answer(scope(), b"{}")
    await let_run()
    assert front.rests == [REST_S]


@pytest.mark.parametrize(("holds_s", "asked"), [(60.0, 3), (0.0, 5)])
async def test_who_has_as_much_time_is_told_the_same_for_a_moment(front, monkeypatch, holds_s, asked):
    monkeypatch.setattr(early_refusal, "HOLDS_S", holds_s)
    refusals = front.refusals
    told = [refusals.answer(scope(deadline), b"{}") for deadline in ("2000", "2000", "900", "900")]
    front.refusal = None
    told.append(refusals.answer(scope("2000"), b"{}"))
    assert [bool(each) for each in told] == [True, True, True, True, False]
    assert len(front.left_s) == asked


async def test_a_rate_is_taken_from_once(front):
    front.gateway.rate_limit = RateLimit(2, 0)
    for status, expects_early in ((529, True), (529, True), (429, False)):
        told, is_early = await answer(front.connect(), request())
        assert (told[:12], is_early) == (b"HTTP/1.1 %d" % status, expects_early)
    front.gateway.rate_limit = RateLimit(1000, 5)
    front.gateway.rate_limit.take_tokens("me", 100, asyncio.get_running_loop().time())
    assert (await answer(front.connect(), request()))[0].startswith(b"HTTP/1.1 429 ")


def scope(deadline="2000"):
    headers = [(name.encode(), value.encode()) for name, value in (HEAD | {"x-deadline-ms": deadline}).items()]
    return {"type": "http", "method": "POST", "path": "/v1/systemone", "headers": headers, "state": {}}


async def test_each_of_a_connections_requests_is_answered_in_its_turn(front):
    connection = front.connect()
    for _ in range(2):
        connection.data_received(request())
        assert (connection.transport.written.count(b" 529 "), connection.tasks) == (1, set())
        assert connection.timeout_keep_alive_task
        connection.transport.written = b""
    told, is_early = await answer(connection, request() + request(authorization=None))
    assert (re.findall(rb"HTTP/1.1 (\d+) ", told), is_early) == ([b"529", b"401"], False)


WHOLE = request(b'{"state": "x"}')
PIECES = WHOLE[:-10], WHOLE[-10:-5], WHOLE[-5:]


@pytest.mark.parametrize("is_likely", [True, False])
async def test_what_comes_in_pieces_is_held_while_others_are_refused(front, is_likely):
    expected, _ = await answer(front.connect(), WHOLE)
    front.single_flight.refused_all_at = asyncio.get_running_loop().time() - (0.0 if is_likely else 2 * LIKELY_S)
    connection = front.connect()
    assert await answer(connection, *PIECES) == (expected, is_likely)
    assert connection._hold_timer is None


@pytest.mark.parametrize("ends", ["late", "left", "expects"])
async def test_it_is_held_no_longer_than_it_should_be(front, monkeypatch, ends):
    monkeypatch.setattr(refusing_protocol, "HOLD_S", 0.0 if ends == "late" else 60.0)
    connection = front.connect()
    asked = request(b"{}", expect="100-continue" if ends == "expects" else None)
    connection.data_received(asked[:-1])
    assert len(connection.tasks) == (ends == "expects")
    if ends == "left":
        connection.connection_lost(None)
    await until(lambda: connection.tasks)
    if ends != "left":
        connection.data_received(asked[-1:])
        connection.connection_lost(None)
    await asyncio.gather(*connection.tasks)
    assert (connection._held, connection._hold_timer) == (None, None)
    assert len(front.counted()) == 2
