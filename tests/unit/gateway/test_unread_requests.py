"""What is refused, while all are, before anybody has looked at what it asks; and what comes before that."""

import asyncio

import pytest

from ostraka_gateway.asking import Asking, hash_of
from ostraka_gateway.dialect import SystemOneDialect
from ostraka_gateway.jevos.dialect import JevosDialect
from ostraka_gateway.large_bodies import LARGE_BODY_BYTES
from ostraka_gateway.openai_decisions.dialect import DecisionsDialect, EitherDialect
from ostraka_gateway.rate_limit import RateLimit
from tests.unit.gateway.full_gateway import MESSAGE, MOST, Exchange

JSON = {"content-type": "application/json"}
SYSTEM_ONE = {"detail": {"error_type": "overloaded_error", "message": MESSAGE}}
OPENAI = {"error": {"message": MESSAGE, "type": "server_error", "param": None, "code": "overloaded_error"}}


def either():
    return EitherDialect(SystemOneDialect("m"), DecisionsDialect("m"))


@pytest.mark.parametrize(
    ("make_dialect", "body", "told"),
    [
        (lambda: SystemOneDialect("m"), b"{} no JSON at all", SYSTEM_ONE),
        (either, b'{"questions": {}}', SYSTEM_ONE),
        (either, b'{"questions": [{}]}', OPENAI),
        (lambda: JevosDialect("m"), b'{"questions": 7}', {"detail": MESSAGE}),
    ],
    ids=["System One", "at OpenAI's path", "OpenAI", "jevos"],
)
async def test_it_is_told_in_the_form_of_the_path(exchange, make_dialect, body, told):
    status, found, headers = await exchange.ask(make_dialect(), body, **JSON)
    assert (status, found) == (529, told)
    assert (headers["retry-after-ms"], headers["retry-after"]) == ("8800", "9")
    assert exchange.left_s == [pytest.approx(2.0, abs=0.5)]


async def test_a_large_one_is_not_even_received(exchange):
    body = b"x" * (LARGE_BODY_BYTES + 1)
    assert (await exchange.ask(SystemOneDialect("m"), body))[0] == 529
    assert exchange.received == 0
    assert (await exchange.ask(JevosDialect("m"), body))[0] == 529
    assert exchange.received == 1, "its client is known only then"


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"authorization": "Bearer wrong"}, 401),
        ({"content-length": str(MOST + 1)}, 413),
        ({"content-encoding": "br"}, 415),
        ({"x-deadline-ms": "soon"}, 422),
    ],
)
async def test_what_no_time_would_mend_comes_first(exchange, headers, status):
    assert (await exchange.ask(SystemOneDialect("m"), **headers))[0] == status


async def test_who_is_over_its_rate_is_told_that():
    exchange = Exchange(RateLimit(0, 10))
    loop = asyncio.get_running_loop()
    assert (await exchange.ask(SystemOneDialect("m")))[0] == 529
    exchange.gateway.rate_limit.take_tokens("key", 1000, loop.time())
    assert (await exchange.ask(SystemOneDialect("m")))[0] == 429
    exchange.gateway.rate_limit = RateLimit(1, 0)
    assert [(await exchange.ask(SystemOneDialect("m")))[0] for _ in range(2)] == [529, 429]
    exchange.gateway.large_bodies.close()
    exchange.gateway.tokenizer_pool.shutdown()


async def test_who_asks_the_same_as_one_that_waits_may_join_it(exchange):
    body = b'{"no": "questions"}'
    assert (await exchange.ask(SystemOneDialect("m"), body))[0] == 529
    with exchange.gateway.asking.hold(hash_of(body)), exchange.gateway.asking.hold(hash_of(body)):
        assert (await exchange.ask(SystemOneDialect("m"), body))[0] == 422
        assert (await exchange.ask(SystemOneDialect("m"), body + b" "))[0] == 529
    assert (await exchange.ask(SystemOneDialect("m"), body))[0] == 529


def test_a_large_body_is_never_held():
    asking, large = Asking(), b"x" * (LARGE_BODY_BYTES + 1)
    with asking.hold(hash_of(large)):
        assert not asking.holds(large)
        assert not asking.holds(large + b"x")
