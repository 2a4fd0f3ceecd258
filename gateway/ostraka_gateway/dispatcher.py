"""The in-flight table: every accepted request is here from admission until its one answer or error.

    ask ──► queued ──send──► sent ──STARTED──► running ──RESULT──► answered
              ▲                └───────┬──────────┘──FAILED──► failed
              └── worker lost ─────────┘
    the deadline passes, at any point: DeadlineExceeded

A request whose worker is lost waits again, first in the queue. One that was running in a lost worker runs alone from
then on, so that it takes no batch mates along; after two lost workers it is poison and never tried a third time.
Deciding has no side effect, so running twice is harmless; answering twice cannot happen.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

import structlog

from ostraka_gateway.admission import Load, admit
from ostraka_gateway.metrics import Metrics
from ostraka_gateway.roster import Roster, Worker
from ostraka_gateway.routing import choose
from ostraka_shared import errors
from ostraka_shared.codec import MAX_FRAME_BYTES
from ostraka_shared.messages import Failed, Message, Result, Work, count_tokens

log = structlog.get_logger()

FRAME_BYTES = 1024
FRAME_BYTES_A_SUFFIX = 5
"""What MessagePack adds: to a frame at most, and to each byte string."""
MAX_CRASHES = 2
CRASH_REASONS = frozenset({"exit", "silent"})
"""Of a worker's loss. Any other is no fault of what it held: it said BYE, joined anew, or its link was cut."""
ALONE_TOKENS = 1 << 62
"""No worker has credit for so many beside another request."""
REPLACEMENT_S = 10.0
"""How long after a worker's end its replacement is still expected: start, load, warm-up."""


@dataclass(frozen=True, slots=True)
class Reply:
    """`queue_ms` is all the time from admission to the answer that was not inference."""

    p_yes: tuple[float, ...]
    queue_ms: float
    inference_ms: float


@dataclass(slots=True, eq=False)
class Pending:
    """`deadline` and `admitted` are instants of the event loop's clock. `worker` holds it now; None while it waits."""

    request_id: str
    prefix: bytes
    suffixes: tuple[bytes, ...]
    state_tokens: int
    tokens: int
    deadline: float
    admitted: float
    future: asyncio.Future[Reply] = field(repr=False)
    worker: Worker | None = None
    attempt: int = 0
    crashes: int = 0
    runs_alone: bool = False

    @property
    def claimed_tokens(self) -> int:
        """What a worker must have room for."""
        return ALONE_TOKENS if self.runs_alone else self.tokens

    def next_attempt(self, now: float) -> Work:
        self.attempt += 1
        left_ms = max(1, int((self.deadline - now) * 1000))
        return Work(self.request_id, self.attempt, left_ms, self.prefix, self.suffixes, self.state_tokens)


class Dispatcher:
    """`send(identity, message)` is False where the worker is unreachable; `on_unreachable` is then told."""

    def __init__(
        self,
        roster: Roster,
        metrics: Metrics,
        send: Callable[[bytes, Message], bool],
        on_unreachable: Callable[[Worker], None],
        queue_tokens: int,
    ) -> None:
        self._roster = roster
        self._metrics = metrics
        self._send = send
        self._on_unreachable = on_unreachable
        self._queue_limit_tokens = queue_tokens
        self._pending: dict[str, Pending] = {}
        self._queue: deque[Pending] = deque()
        self._turn = 0
        self.queued_tokens = 0

    @property
    def queued_requests(self) -> int:
        return len(self._queue)

    @property
    def in_flight_requests(self) -> int:
        return len(self._pending)

    async def ask(
        self, request_id: str, prefix: bytes, suffixes: tuple[bytes, ...], deadline: float, state_tokens: int = 0
    ) -> Reply:
        """`deadline` is an instant of the event loop's clock; the rest is as in WORK.

        Raises InvalidRequest or any ServingError.
        """
        loop = asyncio.get_running_loop()
        now = loop.time()
        tokens = count_tokens(prefix, suffixes)
        _check_size(prefix, suffixes)
        if deadline <= now:
            raise errors.DeadlineExceeded("the deadline passed before the request could be sent", self._retry_s())
        admit(tokens, deadline - now, self._load(now), self._queue_limit_tokens)
        pending = Pending(request_id, prefix, suffixes, state_tokens, tokens, deadline, now, loop.create_future())
        self._pending[request_id] = pending
        try:
            self._enqueue(pending)
            self.pump()
            async with asyncio.timeout_at(deadline):
                return await pending.future
        except TimeoutError:
            raise errors.DeadlineExceeded("no answer before the deadline", self._retry_s()) from None
        finally:
            self._forget(pending)

    def pump(self) -> None:
        """Sends what waits, in order, as long as a worker has room. To be called whenever room may have come."""
        while pending := self._first_waiting():
            worker = choose(self._roster.ready_workers(), pending.claimed_tokens)
            if worker is None:
                return
            self._queue.popleft()
            self.queued_tokens -= pending.tokens
            if not self._send_to(worker, pending):
                self._enqueue(pending, first=True)
                self._on_unreachable(worker)

    def answered(self, worker: Worker, result: Result) -> None:
        pending = self._settle(worker, result.request_id, result.attempt)
        if pending is None:
            self._metrics.late_results.inc()
        elif len(result.p_yes) != len(pending.suffixes):
            pending.future.set_exception(errors.EngineFailed("the worker answered another number of prompts"))
        else:
            total_ms = (asyncio.get_running_loop().time() - pending.admitted) * 1000
            reply = Reply(result.p_yes, max(0.0, total_ms - result.inference_ms), result.inference_ms)
            pending.future.set_result(reply)

    def failed(self, worker: Worker, failed: Failed) -> None:
        pending = self._settle(worker, failed.request_id, failed.attempt)
        if pending is None:
            self._metrics.late_results.inc()
        elif failed.code == errors.DeadlineExceeded.code:
            pending.future.set_exception(errors.DeadlineExceeded(failed.message, self._retry_s()))
        else:
            pending.future.set_exception(errors.EngineFailed(failed.message))

    def take_back(self, worker: Worker, reason: str) -> None:
        """What a lost worker held waits again, in its old order, before all that came later."""
        is_crash = reason in CRASH_REASONS
        held = [pending for request_id in worker.held if (pending := self._pending.get(request_id))]
        for pending in reversed([each for each in held if each.worker is worker and not each.future.done()]):
            pending.worker = None
            if is_crash:
                self._blame(worker, pending)
            if pending.crashes >= MAX_CRASHES:
                log.error("poisoned_request", request=pending.request_id, tokens=pending.tokens)
                pending.future.set_exception(
                    errors.PoisonedRequest(f"{MAX_CRASHES} workers died while running request {pending.request_id}")
                )
                continue
            self._metrics.redispatched.labels(reason).inc()
            self._enqueue(pending, first=True)

    def abandon(self, request_id: str) -> None:
        """Its client has gone. What waits is dropped; what a worker holds is answered to nobody."""
        if (pending := self._pending.get(request_id)) and not pending.future.done():
            pending.future.set_exception(errors.ClientLeft("the client closed the connection"))

    def _blame(self, worker: Worker, pending: Pending) -> None:
        """Of a request in a crash, what is known: that it was running, or just that it may have been, because a
        process's last STARTED may die with it. In doubt it runs alone next time, which harms no innocent one; held
        alone, it was the one."""
        was_running = pending.request_id in worker.started or (not worker.started and len(worker.held) == 1)
        pending.crashes += was_running
        pending.runs_alone = pending.runs_alone or was_running or not worker.started

    def _first_waiting(self) -> Pending | None:
        while self._queue and self._queue[0].future.done():  # expired or cancelled in this very turn of the event loop
            self.queued_tokens -= self._queue.popleft().tokens
        return self._queue[0] if self._queue else None

    def _settle(self, worker: Worker, request_id: str, attempt: int) -> Pending | None:
        """The request this answer is for, if it still waits for it from this worker."""
        pending = self._pending.get(request_id)
        if pending and pending.worker is worker and pending.attempt != attempt:
            return None  # of an attempt before this worker joined again: it holds the newer one still
        worker.release(request_id)
        return None if pending is None or pending.worker is not worker or pending.future.done() else pending

    def _send_to(self, worker: Worker, pending: Pending) -> bool:
        if not self._send(worker.identity, pending.next_attempt(asyncio.get_running_loop().time())):
            return False
        self._turn += 1
        claimed = max(pending.tokens, worker.credit_tokens) if pending.runs_alone else pending.tokens
        worker.hold(pending.request_id, claimed, self._turn)
        pending.worker = worker
        return True

    def _enqueue(self, pending: Pending, *, first: bool = False) -> None:
        self._queue.appendleft(pending) if first else self._queue.append(pending)
        self.queued_tokens += pending.tokens

    def _forget(self, pending: Pending) -> None:
        """Whether answered, failed, expired or cancelled by a client that left: nothing more is done for it."""
        del self._pending[pending.request_id]
        if pending.worker is None and pending in self._queue:
            self._queue.remove(pending)
            self.queued_tokens -= pending.tokens
            self.pump()  # it may have been the one that others waited behind

    def _load(self, now: float) -> Load:
        expects_worker = self._roster.expects_worker(now, REPLACEMENT_S)
        return Load(self.queued_tokens, self._roster.tokens_per_s(), expects_worker)

    def _retry_s(self) -> float:
        rate = self._roster.tokens_per_s()
        return max(0.5, self.queued_tokens / rate) if rate else 1.0


def _check_size(prefix: bytes, suffixes: tuple[bytes, ...]) -> None:
    """Now, while someone can be told, and not when it is sent."""
    if len(prefix) + sum(map(len, suffixes)) + FRAME_BYTES_A_SUFFIX * len(suffixes) > MAX_FRAME_BYTES - FRAME_BYTES:
        raise errors.InvalidRequest(
            "the request's prompts are too many or too long for one message: send fewer questions at a time",
            loc=("body", "questions"),
            kind="too_long",
        )
