"""Between those who wait for answers and the in-flight table: it lets requests in, tells the table what happens, and
does what the table says. Who asks what is being asked already waits for the same answer."""

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import structlog

from ostraka_gateway.admission import Demand, Load, admit
from ostraka_gateway.answer_cache import AnswerCache, Question
from ostraka_gateway.in_flight import InFlight
from ostraka_gateway.metrics import Metrics
from ostraka_gateway.parts import Done, Instruction, Late, Redispatched, Request, Send, Withdraw
from ostraka_gateway.roster import Roster
from ostraka_gateway.routing import state_of
from ostraka_gateway.speeds import full_call_s, measured_speeds, tokens_per_s
from ostraka_gateway.waiting_line import due
from ostraka_gateway.worker import Worker
from ostraka_shared import errors
from ostraka_shared.codec import MAX_FRAME_BYTES
from ostraka_shared.messages import TOKEN_BYTES, Failed, Message, Result

log = structlog.get_logger()

FRAME_BYTES = 1024
FRAME_BYTES_A_SUFFIX = 5
"""What MessagePack adds: to a frame at most, and to each byte string."""
REPLACEMENT_S = 10.0
"""How long after a worker's end its replacement is still expected: start, load, warm-up."""


@dataclass(frozen=True, slots=True)
class Reply:
    """`queue_ms` is all the time from admission to the answer that was not inference."""

    p_yes: tuple[float, ...]
    queue_ms: float
    inference_ms: float


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
        self._table = InFlight(roster)
        self.answers = AnswerCache(0)
        self._asked: dict[Question, Request] = {}
        self._waiters: dict[str, asyncio.Future[None]] = {}

    @property
    def queued_requests(self) -> int:
        return self._table.sending.line.count

    @property
    def queued_tokens(self) -> int:
        return self._table.sending.line.tokens

    @property
    def in_flight_requests(self) -> int:
        return len(self._waiters)

    async def ask(
        self,
        request_id: str,
        question: Question,
        deadline: float,
        added: tuple[int, ...] = (),
    ) -> Reply:
        """`deadline` is an instant of the event loop's clock. `added`: the tokens each suffix adds to what is read,
        where suffixes share a beginning.

        Raises InvalidRequest or any ServingError.
        """
        loop = asyncio.get_running_loop()
        asked_at = loop.time()
        if deadline <= asked_at:
            raise errors.DeadlineExceeded("the deadline passed before the request could be sent", self._retry_s())
        if (known := self.answers.find(self._roster.fingerprint, question)) is not None:
            self._metrics.cached.inc()
            return Reply(known, 0.0, 0.0)
        request = self._join(question, deadline) or self._begin(request_id, question, added, deadline)
        answered: asyncio.Future[None] = loop.create_future()
        request.waiters[request_id] = self._waiters[request_id] = answered
        try:
            self.pump()
            async with asyncio.timeout_at(deadline):
                await answered
        except TimeoutError:
            raise errors.DeadlineExceeded("no answer before the deadline", self._retry_s()) from None
        finally:
            self._leave(request_id, request)
        return self._reply(request_id, request, asked_at)

    def pump(self) -> None:
        """Sends what waits, in order, as long as a worker has room. To be called whenever room may have come."""
        now = asyncio.get_running_loop().time()
        self._act(self._table.sending.pump(now))
        self._roster.pace.watch(now, tokens_per_s(self._roster.ready_workers()), is_waiting=self.queued_requests > 0)

    def answered(self, worker: Worker, result: Result) -> None:
        self._act(self._table.answered(worker, result))

    def failed(self, worker: Worker, failed: Failed) -> None:
        self._act(self._table.failed(worker, failed))

    def take_back(self, worker: Worker, reason: str) -> None:
        """What a lost worker held waits again."""
        self._act(self._table.lost(worker, reason))

    def suspected(self, worker: Worker) -> None:
        self._act(self._table.suspected(worker))
        self.pump()

    def trusted(self, worker: Worker) -> None:
        self._table.trusted(worker)

    def abandon(self, request_id: str) -> None:
        """Its client has gone. If nobody else waits for the same, what waits is dropped, and what a worker holds is
        withdrawn."""
        if (answered := self._waiters.get(request_id)) and not answered.done():
            answered.set_exception(errors.ClientLeft("the client closed the connection"))

    def _join(self, question: Question, deadline: float) -> Request | None:
        request = self._asked.get(question)
        if request is None or request.outcome is not None or not request.is_awaited:
            return None
        self._metrics.shared.inc()
        self._table.sending.hasten(request, deadline)
        return request

    def _begin(self, request_id: str, question: Question, added: tuple[int, ...], deadline: float) -> Request:
        prefix, suffixes, state_tokens = question
        _check_size(prefix, suffixes)
        now = asyncio.get_running_loop().time()
        added = added or tuple(len(suffix) // TOKEN_BYTES for suffix in suffixes)
        request = Request(
            request_id, prefix, suffixes, state_tokens, added, deadline, admitted=now, due_at=due(now, deadline)
        )
        request.state = state_of(prefix, state_tokens, TOKEN_BYTES)
        tokens = request.tokens
        demand = Demand(tokens, max(1, tokens - state_tokens), deadline - now, can_split=len(suffixes) > 1)
        admit(demand, self._load(now), self._queue_limit_tokens)
        self._asked[question] = request
        self._table.add(request)
        return request

    def _leave(self, request_id: str, request: Request) -> None:
        """Whether answered, failed, expired or gone: it waits no more. The last one ends the request."""
        del self._waiters[request_id]
        del request.waiters[request_id]
        if request.waiters:
            return
        question = (request.prefix, request.suffixes, request.state_tokens)
        if self._asked.get(question) is request:
            del self._asked[question]
        if request.outcome is None:
            self._act(self._table.drop(request))
            self.pump()  # it may have been the one that others waited behind

    def _reply(self, request_id: str, request: Request, asked_at: float) -> Reply:
        outcome = request.outcome
        if isinstance(outcome, tuple):
            total_ms = (asyncio.get_running_loop().time() - asked_at) * 1000
            return Reply(outcome, max(0.0, total_ms - request.inference_ms), request.inference_ms)
        error = outcome or errors.EngineFailed("answered without an outcome. This is a bug.")
        is_late = isinstance(error, errors.DeadlineExceeded)
        # Each of those who wait is told of itself.
        raise type(error)(str(error).replace(request.request_id, request_id), self._retry_s() if is_late else None)

    def _act(self, instructions: Iterable[Instruction]) -> None:
        for each in instructions:
            match each:
                case Send():
                    # Sending may fail, which takes all back from that worker: also what was to be sent to it next.
                    if each.part.holders.get(each.worker) != each.work.attempt:
                        continue
                    if not self._send(each.worker.identity, each.work):
                        self._on_unreachable(each.worker)
                case Withdraw():
                    self._send(each.worker.identity, each.message)
                case Done():
                    self._end(each.request)
                case Redispatched():
                    self._metrics.redispatched.labels(each.reason).inc()
                case Late():
                    self._count_late(each)

    def _end(self, request: Request) -> None:
        if isinstance(request.outcome, errors.PoisonedRequest):
            log.error("poisoned_request", request=request.request_id, tokens=request.tokens)
        if isinstance(request.outcome, tuple):
            question = (request.prefix, request.suffixes, request.state_tokens)
            self.answers.keep(self._roster.fingerprint, question, request.outcome)
        for request_id in request.waiters:
            if not (answered := self._waiters[request_id]).done():
                answered.set_result(None)

    def _count_late(self, late: Late) -> None:
        self._metrics.late_results.inc()
        if late.is_same is not None:
            self._metrics.duplicates.labels("same" if late.is_same else "different").inc()
        if late.is_same is False:
            log.error("answers_differ", request=late.part_id, detail="two workers answered the same differently")

    def _load(self, now: float) -> Load:
        ready = self._roster.ready_workers()
        has_idle = not self.queued_tokens and not all(worker.held for worker in ready)
        held_tokens = 0 if has_idle else sum(worker.claimed_tokens for worker in ready)
        expects_worker = self._roster.expects_worker(now, REPLACEMENT_S)
        total, fastest = measured_speeds(ready, self._roster.pace.share, now)
        call_s = full_call_s(ready) if self.queued_tokens else 0.0
        return Load(self.queued_tokens, held_tokens, total, fastest, expects_worker, call_s)

    def _retry_s(self) -> float:
        rate = tokens_per_s(self._roster.ready_workers())
        return max(0.5, self.queued_tokens / rate) if rate else 1.0


def _check_size(prefix: bytes, suffixes: tuple[bytes, ...]) -> None:
    """Now, while someone can be told, and not when it is sent."""
    if len(prefix) + sum(map(len, suffixes)) + FRAME_BYTES_A_SUFFIX * len(suffixes) > MAX_FRAME_BYTES - FRAME_BYTES:
        raise errors.InvalidRequest(
            "the request's prompts are too many or too long for one message: send fewer questions at a time",
            loc=("body", "questions"),
            kind="too_long",
        )
