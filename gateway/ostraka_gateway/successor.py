"""The gateway of the next generation, as the one that serves sees it during a rollout: what is mirrored to it, and what
is passed on. Whatever it does, no client here is worse off: mirroring begins after the answer, and what it fails to
answer is answered here.
"""

import asyncio
import zlib
from collections import deque
from collections.abc import Mapping

from starlette.requests import Request
from starlette.responses import Response

from ostraka_gateway.metrics import Metrics
from ostraka_gateway.private_client import PrivateClient, Received, Unreachable
from ostraka_gateway.shadow import OVERLOAD_STATUSES, Answered, Figures, compare

MIRRORED_AT_MOST = 32
"""Waiting to be mirrored; more are dropped and counted: a slower new model must not fill the memory."""
MIRRORED_BYTES_AT_MOST = 1 << 24
PASSED_HEADERS = ("authorization", "content-type")
RETURNED_HEADERS = ("content-type", "server-timing", "retry-after", "retry-after-ms", "www-authenticate")
"""What an answer says of itself; the rest is each connection's own."""
HASHES = 1 << 32
REFUSED = 400
FAILED = 500
LATE_S = 0.5
"""Beyond the deadline, for it to say that time was too short: who does is busy, who says nothing stands still."""


class Successor:
    """`share_mirrored` and `share_passed_on` are set from outside, in 0..1. Lives on one event loop."""

    def __init__(self, socket_path: str, metrics: Metrics) -> None:
        self.socket_path = socket_path
        self.share_mirrored = 0.0
        self.share_passed_on = 0.0
        self.figures = Figures()
        self._client = PrivateClient(socket_path)
        self._metrics = metrics
        self._due = 0.0
        self._mirrored: deque[tuple[str, dict[str, str], bytes, Answered]] = deque()
        self._mirrored_bytes = 0
        self._mirroring: asyncio.Task[None] | None = None

    def takes(self, http: Request) -> bool:
        """By connection, so that as the share grows each of them changes once from the old model to the new."""
        return self.share_passed_on > 0 and place_of(http) < self.share_passed_on

    async def answer(self, http: Request, body: bytes, deadline: float) -> Response | None:
        """Its own, for a client; None where it has none, and the request is to be answered here.

        A refusal for being busy is none either: here there may be room. Another one is to be held against what is
        answered here: see `contradict`.
        """
        left_ms = max(1, round((deadline - asyncio.get_running_loop().time()) * 1000))
        headers = _headers(http) | {"x-deadline-ms": str(left_ms)}
        try:
            async with asyncio.timeout_at(deadline + LATE_S):
                received = await self._client.post(http.url.path, headers, body)
        except (Unreachable, TimeoutError):
            self._count(Figures(taken_back=1), "taken_back")
            return None
        if received.status in OVERLOAD_STATUSES:
            self._count(Figures(refused=1), "refused")
            return None
        if received.status >= FAILED:
            self._count(Figures(taken_back=1), "taken_back")
            return None
        if received.status < REFUSED:
            self._count(Figures(passed_on=1), "passed_on")
        returned = {name: received.headers[name] for name in RETURNED_HEADERS if name in received.headers}
        return Response(received.body, status_code=received.status, headers=returned)

    def contradict(self) -> None:
        """What it refused was answered here: another name, other keys or limits; its client did no wrong."""
        self._count(Figures(taken_back=1), "taken_back")

    def mirror(self, http: Request, body: bytes, answer: bytes, seconds: float) -> None:
        """To be told of each answer that was given here; takes its share of them."""
        self._due += self.share_mirrored
        if self._due < 1:
            return
        self._due -= 1
        size = len(body) + len(answer)
        if len(self._mirrored) >= MIRRORED_AT_MOST or self._mirrored_bytes + size > MIRRORED_BYTES_AT_MOST:
            self._count(Figures(dropped=1), "dropped")
            return
        self._mirrored_bytes += size
        self._mirrored.append((http.url.path, _headers(http), body, Answered(200, answer, seconds)))
        if self._mirroring is None or self._mirroring.done():
            self._mirroring = asyncio.create_task(self._mirror_all())

    def stop_mirroring(self) -> None:
        self.share_mirrored = self._due = 0.0
        self._mirrored.clear()
        self._mirrored_bytes = 0

    def make_room(self) -> None:
        """It is about to take the clients' own connections, and may have only so many."""
        self._client.close()

    def close(self) -> None:
        """What it was given and has not answered yet is answered here."""
        self.share_passed_on = 0.0
        self.stop_mirroring()
        if self._mirroring:
            self._mirroring.cancel()
        self._client.close()

    async def _mirror_all(self) -> None:
        """One at a time: it is to be seen how the new model answers, not how much of it there is."""
        loop = asyncio.get_running_loop()
        while self._mirrored:
            path, headers, body, old = self._mirrored.popleft()
            self._mirrored_bytes -= len(body) + len(old.body)
            begun = loop.time()
            try:
                received = await self._client.post(path, headers, body)
            except Unreachable:
                received = Received(0, {}, b"")
            found = compare(old, Answered(received.status, received.body, loop.time() - begun))
            self._count(found, "error" if found.errors else "unanswered" if found.unanswered else "compared")

    def _count(self, figures: Figures, outcome: str) -> None:
        self.figures += figures
        self._metrics.rollout.labels(outcome).inc()


def place_of(http: Request) -> float:
    """Of a client's connection, in 0..1: the same for each of its requests."""
    client = http.client
    return zlib.crc32(f"{client.host}:{client.port}".encode()) / HASHES if client else 0.0


def _headers(http: Request) -> dict[str, str]:
    """A body was decoded already: its encoding is not passed on."""
    given: Mapping[str, str] = http.headers
    return {name: given[name] for name in PASSED_HEADERS if name in given}
