"""What a request is told while nobody is let in, as `decision` would tell it, without the application: the same bytes
and counts. At three times the capacity that is most of what the gateway does, on cores that the workers want.

Whatever might have another answer (no key, a rate, an encoding, a body that another is being answered for, a successor
who may let it in) is for the application: this one says nothing, and has taken nothing.
"""

import asyncio
from collections.abc import Iterable

from starlette.types import Scope
from uvicorn.protocols.http.httptools_impl import STATUS_LINE

from ostraka_gateway.decision import DEADLINE_HEADER, Gateway, deadline_ms
from ostraka_gateway.large_bodies import LARGE_BODY_BYTES
from ostraka_gateway.lull import Lull
from ostraka_gateway.middleware import REQUEST_ID_HEADER, SYSTEM_ONE_PATHS, count, make_request_id
from ostraka_gateway.problems import Problem, from_error
from ostraka_gateway.speeds import full_call_s
from ostraka_shared.errors import Overloaded, RateLimited, RequestError

OTHERWISE = frozenset({b"content-encoding", b"expect"})
"""With these something may have to be said before, or instead."""

LIKELY_S = 1.0
"""As long after a refusal the next one is expected."""


class EarlyRefusal:
    """For the dialect whose key comes first, at the paths that only it is spoken at."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self._most_bytes = min(gateway.body_bytes, LARGE_BODY_BYTES)
        self._lull = Lull(lambda: full_call_s(gateway.cluster.roster.ready_workers()))

    def is_likely(self) -> bool:
        return asyncio.get_running_loop().time() - self._gateway.cluster.single_flight.refused_all_at < LIKELY_S

    def answer(self, scope: Scope, body: bytes) -> bytes | None:
        """The whole answer to a request that is all here, or None."""
        gateway = self._gateway
        is_ours = scope["path"] in SYSTEM_ONE_PATHS and scope["method"] == "POST"
        if not is_ours or gateway.successor or len(body) > self._most_bytes:
            return None
        found = _single(scope["headers"])
        if found is None or "is_crowded" in scope["state"]:
            return None
        try:
            key = gateway.keys.check(found.get("authorization"))
            deadline_s = deadline_ms(found.get(DEADLINE_HEADER), gateway.deadline_ms) / 1000
            refusal = self._refusal(deadline_s, key, body)
        except (RequestError, RateLimited):
            return None
        if refusal is None:
            return None
        self._lull.follow(deadline_s)
        problem = from_error(refusal)
        scope["state"]["key"] = key
        count(gateway.cluster.metrics, scope, problem.status)
        return _encode(problem)

    def _refusal(self, deadline_s: float, key: str | None, body: bytes) -> Overloaded | None:
        """Raises RateLimited. A rate is taken from last, once nothing else can be said."""
        gateway, now = self._gateway, asyncio.get_running_loop().time()
        refusal = gateway.cluster.single_flight.refusal_of_all(now + deadline_s)
        if refusal is None or gateway.asking.holds(body):
            return None
        gateway.rate_limit.check_tokens(key, now)
        gateway.rate_limit.take_request(key, now)
        return refusal


def _single(headers: Iterable[tuple[bytes, bytes]]) -> dict[str, str] | None:
    """The first of each name, as the application reads them. None where it has to."""
    found: dict[str, str] = {}
    for name, value in headers:
        if name in OTHERWISE or (name == b"content-type" and value[:10].lower() == b"multipart/"):
            return None
        found.setdefault(name.decode("latin-1"), value.decode("latin-1"))
    return found


def _encode(problem: Problem) -> bytes:
    headers = problem.headers | {"content-length": str(len(problem.body)), REQUEST_ID_HEADER: make_request_id()}
    listed = "".join([f"{name}: {value}\r\n" for name, value in headers.items()])
    return STATUS_LINE[problem.status] + listed.encode() + b"\r\n" + problem.body
