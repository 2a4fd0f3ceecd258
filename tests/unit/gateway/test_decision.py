"""What becomes of a request during a rollout: whose answer its client gets, and what is held against the successor; and
where a request is tokenized."""

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from types import SimpleNamespace

import pytest
from starlette.requests import Request
from starlette.responses import Response

from ostraka_gateway.asking import Asking
from ostraka_gateway.auth import Keys
from ostraka_gateway.decision import SHORT_BODY_BYTES, SHORT_PROMPTS, Gateway, respond
from ostraka_gateway.http_config import HttpConfig
from ostraka_gateway.large_bodies import LARGE_BODY_BYTES, LargeBodies
from ostraka_gateway.metrics import Metrics
from ostraka_gateway.problems import from_error
from ostraka_gateway.shadow import Figures
from ostraka_gateway.single_flight import Reply
from ostraka_gateway.successor import Successor
from ostraka_gateway.tokenization import TokenizedRequest
from ostraka_shared.errors import InvalidRequest

ASKING = Asking()


class FakeDialect:
    """Answers without a model, and refuses the body `wrong`."""

    checks_key_first = False
    request = SimpleNamespace(state="short", prompt_count=1)
    refuse = staticmethod(from_error)

    def decode(self, body, _content_type):
        return body

    def validate(self, body):
        if body == b"wrong":
            raise InvalidRequest("wrong")
        return SimpleNamespace(request=self.request)

    def answer(self, *_):
        return b"from here"


class FakeSuccessor(Successor):
    """Takes everything, and gives `response`."""

    def __init__(self, response):
        super().__init__("/nowhere", Metrics())
        self.share_passed_on = 1.0
        self._response = response

    async def answer(self, *_):
        return self._response


@contextmanager
def serving(successor=None, tokenize=lambda _: TokenizedRequest(b"", (), 0, 0), **parts):
    with ThreadPoolExecutor(1) as pool:
        gateway = Gateway(
            "gateway",
            None,
            SimpleNamespace(tokenize=tokenize),
            SimpleNamespace(metrics=Metrics(), single_flight=SimpleNamespace(refusal_of_all=lambda _: None, **parts)),
            pool,
            LargeBodies(HttpConfig.body_bytes),
            9000,
            "2026-01-01",
            keys=Keys(),
            asking=ASKING,
            successor=successor,
        )
        yield gateway
        gateway.large_bodies.close()


async def ask_gateway(gateway, body, dialect=None, **headers):
    messages = [{"type": "http.request", "body": body}]

    async def receive():
        if messages:
            return messages.pop()
        return await asyncio.Event().wait()  # the connection lives

    scope = {"type": "http", "method": "POST", "path": "/", "query_string": b"", "client": ("a", 1)}
    scope["headers"] = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
    scope["state"] = {"request_id": "r"}
    return await respond(gateway, dialect or FakeDialect(), Request(scope, receive))


async def decide(response, body=b"right", dialect=None, **parts):
    """(what the client gets, the successor's figures)"""
    successor = FakeSuccessor(response)
    with serving(successor, **parts) as gateway:
        return await ask_gateway(gateway, body, dialect), successor.figures


@pytest.mark.parametrize(
    ("response", "gets", "figures"),
    [
        (Response(b"from there"), b"from there", Figures()),
        (None, b"from here", Figures()),
        (Response(b"unknown model", 400), b"from here", Figures(taken_back=1)),
        (Response(b"no such key", 401), b"from here", Figures(taken_back=1)),
    ],
)
async def test_what_only_the_successor_refuses_is_answered_here_and_held_against_it(response, gets, figures):
    found, counted = await decide(response)
    assert (found.status_code, found.body) == (200, gets)
    assert counted == figures


async def test_what_both_refuse_is_held_against_nobody():
    found, counted = await decide(Response(b"wrong there", 422), b"wrong")
    assert found.status_code == 422
    assert b"wrong there" not in found.body
    assert counted == Figures()


async def test_a_body_is_known_for_as_long_as_it_is_answered():
    held = []

    async def ask(*_):
        held.append(ASKING.holds(b"right"))
        return Reply((0.5,), 0.0, 0.0)

    found, _ = await decide(None, tokenize=lambda _: TokenizedRequest(b"", (b"1234",), 0, 1), ask=ask)
    assert found.status_code == 200
    assert [*held, ASKING.holds(b"right")] == [True, False]


@pytest.mark.parametrize(
    ("state", "prompts", "body", "is_at_once"),
    [
        ("short", SHORT_PROMPTS, b"x" * SHORT_BODY_BYTES, True),
        ("short", SHORT_PROMPTS + 1, b"x", False),
        ("long", 1, b"x" * (SHORT_BODY_BYTES + 1), False),
        ([[["written out longer"]]], 1, b"x", False),
    ],
)
async def test_only_short_texts_hold_up_the_others(state, prompts, body, is_at_once):
    threads = []
    dialect = FakeDialect()
    dialect.request = SimpleNamespace(state=state, prompt_count=prompts)

    def tokenize(_):
        threads.append(threading.current_thread())
        return TokenizedRequest(b"", (), 0, 0)

    await decide(None, body, dialect, tokenize=tokenize)
    assert [each is threading.main_thread() for each in threads] == [is_at_once]


@pytest.mark.parametrize("size", [SHORT_BODY_BYTES + 1, LARGE_BODY_BYTES + 1])
async def test_who_still_waits_for_a_thread_at_the_deadline_is_told_so_and_costs_it_nothing(size):
    let_go, tokenized = threading.Event(), []
    with serving(tokenize=tokenized.append, retry_s=lambda: 2.0) as gateway:
        for occupied in (gateway.tokenizer_pool, gateway.large_bodies._pool):
            occupied.submit(let_go.wait, 30)
        try:
            found = await ask_gateway(gateway, b"x" * size, x_deadline_ms="20")
        finally:
            let_go.set()
    assert (found.status_code, found.headers["retry-after"]) == (504, "2")
    assert tokenized == []
