"""What a request is told while nobody is let in, as `decision` would tell it, without the application: the same bytes
and counts. At three times the capacity that is most of what the gateway does, on cores that the workers want.

Whatever might have another answer (no key, a rate, a body that cannot be read, or is large, or is one that another is
being answered for, a successor who may let it in) is for the application: this one says nothing, and has taken nothing.
"""

import asyncio
from collections.abc import Iterable

from starlette.requests import Request
from starlette.types import Scope
from uvicorn.protocols.http.httptools_impl import STATUS_LINE

from ostraka_gateway.decision import DEADLINE_HEADER, Gateway, deadline_ms
from ostraka_gateway.dialect import Dialect, Dialects
from ostraka_gateway.encodings import decoder_for
from ostraka_gateway.large_bodies import LARGE_BODY_BYTES
from ostraka_gateway.lull import Lull
from ostraka_gateway.middleware import REQUEST_ID_HEADER, count, make_request_id
from ostraka_gateway.problems import Problem
from ostraka_shared.errors import Overloaded, RateLimited, RequestError

LIKELY_S = 1.0
"""As long after a refusal the next one is expected."""

HOLDS_S = 0.005
"""As long a refusal holds for all with as much time: within it the queue becomes no shorter than by as much. To find it
out anew for each is a third of what one costs, where caches are cold: 80 of 240 us."""


class EarlyRefusal:
    """In each path's own dialect. `dialects`: as the application has them."""

    def __init__(self, gateway: Gateway, dialects: Dialects) -> None:
        self._gateway = gateway
        self._dialects = dialects
        self._most_bytes = min(gateway.body_bytes, LARGE_BODY_BYTES)
        self._lull = Lull(gateway.cluster.await_worker)
        self._known: tuple[float, float, Overloaded | None] = (0.0, 0.0, None)
        self._worded: tuple[Dialect, Overloaded, Problem] | None = None

    def is_likely(self) -> bool:
        return asyncio.get_running_loop().time() - self._gateway.cluster.single_flight.refused_all_at < LIKELY_S

    def answer(self, scope: Scope, body: bytes) -> bytes | None:
        """The whole answer to a request that is all here, or None."""
        if scope["path"] not in self._dialects or scope["method"] != "POST" or "is_crowded" in scope["state"]:
            return None
        successor, found = self._gateway.successor, _first_of_each(scope["headers"])
        if found is None or (successor and successor.takes(Request(scope))):
            return None
        try:
            problem = self._refuse(scope, found, body)
        except (RequestError, RateLimited):
            return None
        if problem is None:
            return None
        count(self._gateway.cluster.metrics, scope, problem.status)
        return _encode(problem)

    def _refuse(self, scope: Scope, found: dict[str, str], encoded: bytes) -> Problem | None:
        """Raises RequestError or RateLimited. A rate is taken from last, once nothing else can be said."""
        gateway, now = self._gateway, asyncio.get_running_loop().time()
        key = gateway.keys.check(found.get("authorization"))
        deadline_s = deadline_ms(found.get(DEADLINE_HEADER), gateway.deadline_ms) / 1000
        refusal = self._refusal_of_all(deadline_s, now)
        body = _decode(found.get("content-encoding", ""), encoded, self._most_bytes) if refusal else None
        if refusal is None or body is None or gateway.asking.holds(body):
            return None
        dialect = self._dialects[scope["path"]]()
        dialect.decode(body, found.get("content-type"))
        gateway.rate_limit.check_tokens(key, now)
        gateway.rate_limit.take_request(key, now)
        scope["state"]["key"] = key
        if not gateway.successor:  # whose answers come from a socket like a client's
            self._lull.follow(deadline_s)
        return self._word(dialect, refusal)

    def _refusal_of_all(self, deadline_s: float, now: float) -> Overloaded | None:
        known_s, until, refusal = self._known
        if deadline_s != known_s or now >= until:
            refusal = self._gateway.cluster.single_flight.refusal_of_all(now + deadline_s)
            self._known = (deadline_s, now + HOLDS_S if refusal else now, refusal)
        return refusal

    def _word(self, dialect: Dialect, refusal: Overloaded) -> Problem:
        if not (self._worded and self._worded[0] is dialect and self._worded[1] is refusal):
            self._worded = (dialect, refusal, dialect.refuse(refusal))
        return self._worded[2]


def _first_of_each(headers: Iterable[tuple[bytes, bytes]]) -> dict[str, str] | None:
    """By name, as the application reads them. None where something has to be said before, or where one is read with
    those after it."""
    found: dict[str, str] = {}
    for name, value in headers:
        if name == b"expect" or (name == b"content-encoding" and "content-encoding" in found):
            return None
        found.setdefault(name.decode("latin-1"), value.decode("latin-1"))
    return found


def _decode(encoding: str, encoded: bytes, most_bytes: int) -> bytes | None:
    """None where it is larger. Raises RequestError."""
    if len(encoded) > most_bytes:
        return None
    if (decoder := decoder_for(encoding)) is None:
        return encoded
    body = bytearray()
    for piece in decoder.pieces(encoded):
        body += piece
        if len(body) > most_bytes:
            return None
    decoder.check_complete()
    return bytes(body)


def _encode(problem: Problem) -> bytes:
    headers = problem.headers | {"content-length": str(len(problem.body)), REQUEST_ID_HEADER: make_request_id()}
    listed = "".join([f"{name}: {value}\r\n" for name, value in headers.items()])
    return STATUS_LINE[problem.status] + listed.encode() + b"\r\n" + problem.body
