"""One decision, from an HTTP request to its response: the steps in order, each timed; errors in the dialect's form."""

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar

from pydantic import ValidationError
from starlette.requests import Request
from starlette.responses import Response

from ostraka_gateway.asking import Asking, hash_of
from ostraka_gateway.auth import Keys
from ostraka_gateway.body import read_body
from ostraka_gateway.cluster import Cluster
from ostraka_gateway.dialect import Asked, Dialect
from ostraka_gateway.http_config import HttpConfig
from ostraka_gateway.json_values import check_values
from ostraka_gateway.large_bodies import LARGE_BODY_BYTES, LargeBodies, Room
from ostraka_gateway.limits import DEADLINE_MS_MAX
from ostraka_gateway.problems import Problem
from ostraka_gateway.rate_limit import RateLimit
from ostraka_gateway.schemas import SystemOneRequest
from ostraka_gateway.served_model import ServedModel
from ostraka_gateway.siblings import Siblings
from ostraka_gateway.single_flight import Reply
from ostraka_gateway.successor import REFUSED, Successor
from ostraka_gateway.timeline import Timeline
from ostraka_gateway.tokenization import TokenizedRequest
from ostraka_shared.errors import ClientLeft, DeadlineExceeded, InvalidRequest, OstrakaError

DEADLINE_HEADER = "x-deadline-ms"
JSON = "application/json"
SHORT_BODY_BYTES = 1024
SHORT_PROMPTS = 8
"""So much is tokenized in 0.1 to 0.5 ms, at once: to a thread and back is about as much again."""

Taken = TypeVar("Taken")


@dataclass(slots=True)
class Gateway:
    """One gateway's parts, and whether it is leaving. `started` is the UTC date of its start. `successor`: during a
    rollout, the gateway of the next generation. `wanted_workers`: None where nobody has said it.
    `degraded`: what its supervisor finds wrong."""

    name: str
    siblings: Siblings
    model: ServedModel
    cluster: Cluster
    tokenizer_pool: ThreadPoolExecutor
    large_bodies: LargeBodies
    deadline_ms: int
    started: str
    body_bytes: int = HttpConfig.body_bytes
    read_timeout_s: float = HttpConfig.read_timeout_s
    keys: Keys = field(default_factory=Keys)
    rate_limit: RateLimit = field(default_factory=lambda: RateLimit(0, 0))
    asking: Asking = field(default_factory=Asking)
    is_draining: bool = False
    successor: Successor | None = None
    wanted_workers: int | None = None
    degraded: tuple[str, ...] = ()


async def respond(gateway: Gateway, dialect: Dialect, http: Request) -> Response:
    try:
        return await _decide(gateway, dialect, http)
    except (ValidationError, OstrakaError) as bad:
        # Where a frame it came through names it, or the future it came by, they hold each other, and all that is on the
        # stack: the body, its tokens. Only a garbage collection would find them.
        bad.__traceback__ = None
        return to_response(dialect.refuse(bad))


def to_response(problem: Problem) -> Response:
    return Response(problem.body, status_code=problem.status, headers=problem.headers)


async def _decide(gateway: Gateway, dialect: Dialect, http: Request) -> Response:
    timeline = Timeline()
    arrived = asyncio.get_running_loop().time()
    if dialect.checks_key_first:
        _check_client(gateway, http)
    deadline = arrived + deadline_ms(http.headers.get(DEADLINE_HEADER), gateway.deadline_ms) / 1000
    refuse = partial(_refuse_if_all_are, gateway, http, deadline)
    # Not where the client is known only once it is here, or where the successor may let it in.
    may_stay_unread = dialect.checks_key_first and not gateway.successor
    with Room(gateway.large_bodies, partial(refuse, b"") if may_stay_unread else None) as room:
        body = await read_body(http, gateway.body_bytes, gateway.read_timeout_s, room)
        timeline.restart()  # the client's own pace is not our time
        passed_on = None
        if (successor := gateway.successor) and successor.takes(http):
            passed_on = await _pass_on(successor, http, body, deadline)
            if passed_on is not None and passed_on.status_code < REFUSED:
                return passed_on
        understanding = _understand(gateway, dialect, http, body, timeline, refuse)
        asked = await (_in_time(gateway, understanding, deadline) if len(body) > LARGE_BODY_BYTES else understanding)
    mirrored = body if successor and len(body) <= LARGE_BODY_BYTES else None
    body_hash = hash_of(body)
    is_short = len(body) <= SHORT_BODY_BYTES and _is_plain(asked.request)
    del body  # from here on the answer is waited for
    tokens = await _tokenize(gateway, asked.request, deadline, is_short=is_short)
    gateway.rate_limit.take_tokens(http.state.key, tokens.input_tokens, asyncio.get_running_loop().time())
    timeline.mark("tokenize")
    with gateway.asking.hold(body_hash):
        reply = await _ask(gateway, http, tokens, deadline)
    timeline.mark_asked(reply.queue_ms, reply.inference_ms)
    answer = dialect.answer(asked, reply.p_yes, tokens.input_tokens)
    timeline.mark("respond")
    headers = {"Server-Timing": timeline.finish()}
    gateway.cluster.metrics.observe(timeline.seconds)
    if successor and passed_on is not None:
        successor.contradict()
    elif successor and mirrored is not None:
        successor.mirror(http, mirrored, answer, timeline.seconds["total"])
    return Response(answer, media_type=JSON, headers=headers)


async def _pass_on(successor: Successor, http: Request, body: bytes, deadline: float) -> Response | None:
    """None where it is to be answered here. Raises ClientLeft."""
    asking = asyncio.create_task(successor.answer(http, body, deadline))
    watch = asyncio.create_task(_watch_client(http, asking.cancel))
    try:
        await asyncio.wait({asking})
        if asking.cancelled():
            raise ClientLeft("the client closed the connection")
        return asking.result()
    finally:
        watch.cancel()
        asking.cancel()


async def _understand(
    gateway: Gateway, dialect: Dialect, http: Request, body: bytes, timeline: Timeline, refuse: Callable[[bytes], None]
) -> Asked:
    """`refuse` raises, once the client and its form are known, where nobody is let in."""
    if len(body) > LARGE_BODY_BYTES:
        return await _understand_large(gateway, dialect, http, body, timeline, refuse)
    decoded = dialect.decode(body, http.headers.get("content-type"))
    timeline.mark("parse")
    if not dialect.checks_key_first:
        _check_client(gateway, http)
    refuse(body)
    asked = dialect.validate(decoded)
    timeline.mark("validate")
    return asked


async def _understand_large(
    gateway: Gateway, dialect: Dialect, http: Request, body: bytes, timeline: Timeline, refuse: Callable[[bytes], None]
) -> Asked:
    """One at a time: what is decoded takes many times what was sent."""
    async with gateway.large_bodies.turn:
        run = gateway.large_bodies.run
        await run(check_values, body)
        decoded = await run(dialect.decode, body, http.headers.get("content-type"))
        timeline.mark("parse")
        if not dialect.checks_key_first:
            _check_client(gateway, http)
        refuse(body)
        asked = await run(dialect.validate, decoded)
        timeline.mark("validate")
        return asked


def _check_client(gateway: Gateway, http: Request) -> None:
    """Raises Unauthenticated or RateLimited."""
    key = http.state.key = gateway.keys.check(http.headers.get("authorization"))
    gateway.rate_limit.take_request(key, asyncio.get_running_loop().time())


def _refuse_if_all_are(gateway: Gateway, http: Request, deadline: float, body: bytes) -> None:
    """Before what is asked is looked at, where it makes no difference: who asks the same as another that waits may
    join it. Raises Overloaded, or RateLimited, which comes first there too."""
    if gateway.asking.holds(body):
        return
    if (refusal := gateway.cluster.single_flight.refusal_of_all(deadline)) is not None:
        gateway.rate_limit.check_tokens(http.state.key, asyncio.get_running_loop().time())
        raise refusal


def _is_plain(request: SystemOneRequest) -> bool:
    """Its prompts are not much longer than what was sent: a structured state may be, once it is written out."""
    return isinstance(request.state, str) and request.prompt_count <= SHORT_PROMPTS


async def _tokenize(
    gateway: Gateway, request: SystemOneRequest, deadline: float, *, is_short: bool
) -> TokenizedRequest:
    """In a thread: the tokenizer gives up the GIL, and a long text must not hold the event loop."""
    if is_short:
        return gateway.model.tokenize(request)
    loop = asyncio.get_running_loop()
    tokenizing = loop.run_in_executor(gateway.tokenizer_pool, gateway.model.tokenize, request)
    return await _in_time(gateway, tokenizing, deadline)


async def _in_time(gateway: Gateway, step: Awaitable[Taken], deadline: float) -> Taken:
    """A step that waits for a thread. Raises DeadlineExceeded; what no thread has begun by then is never begun."""
    try:
        async with asyncio.timeout_at(deadline):
            return await step
    except TimeoutError:
        retry_s = gateway.cluster.single_flight.retry_s()
        raise DeadlineExceeded("the deadline passed before the request could be read", retry_s) from None


async def _ask(gateway: Gateway, http: Request, tokens: TokenizedRequest, deadline: float) -> Reply:
    if not tokens.suffixes:  # a score of one level needs no model
        return Reply((), 0.0, 0.0)
    single_flight, request_id = gateway.cluster.single_flight, http.state.request_id
    watch = asyncio.create_task(_watch_client(http, lambda: single_flight.abandon(request_id)))
    try:
        question = (tokens.prefix, tokens.suffixes, tokens.state_tokens)
        return await single_flight.ask(request_id, question, deadline, tokens.added)
    finally:
        watch.cancel()


async def _watch_client(http: Request, on_left: Callable[[], object]) -> None:
    """The body has been read, so that nothing but the connection's end can still come."""
    while (await http.receive())["type"] != "http.disconnect":
        pass
    on_left()


def deadline_ms(text: str | None, default_ms: int) -> int:
    """Raises InvalidRequest."""
    if text is None:
        return default_ms
    if not (text.isascii() and text.isdigit() and len(text) < 10 and 1 <= int(text) <= DEADLINE_MS_MAX):
        raise InvalidRequest(
            f"{DEADLINE_HEADER} should be a whole number of milliseconds from 1 to {DEADLINE_MS_MAX}",
            loc=("header", DEADLINE_HEADER),
        )
    return int(text)
