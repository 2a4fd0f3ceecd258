"""Those who wait for answers. Who asks what was answered is told at once, who asks what is being asked already waits
for the same answer, and anyone else's request is admitted, or refused, and given to the dispatcher."""

import asyncio
import math
from dataclasses import dataclass

import structlog

from ostraka_gateway.admission import Demand, admit, refusal_of_all
from ostraka_gateway.answer_cache import AnswerCache, Question
from ostraka_gateway.dispatcher import Dispatcher
from ostraka_gateway.load import loads_by_size, measure_load, retry_s
from ostraka_gateway.metrics import Metrics
from ostraka_gateway.parts import Request
from ostraka_gateway.roster import Roster
from ostraka_gateway.routing import state_of
from ostraka_gateway.waiting_line import due
from ostraka_shared import errors
from ostraka_shared.codec import MAX_FRAME_BYTES
from ostraka_shared.messages import TOKEN_BYTES

log = structlog.get_logger()

FRAME_BYTES = 1024
FRAME_BYTES_A_SUFFIX = 5
"""What MessagePack adds: to a frame at most, and to each byte string."""


@dataclass(frozen=True, slots=True)
class Reply:
    """`queue_ms` is all the time from admission to the answer that was not inference."""

    p_yes: tuple[float, ...]
    queue_ms: float
    inference_ms: float


class SingleFlight:
    def __init__(
        self, roster: Roster, metrics: Metrics, dispatcher: Dispatcher, answers: AnswerCache, queue_tokens: int
    ) -> None:
        self._roster = roster
        self._metrics = metrics
        self._dispatcher = dispatcher
        self._answers = answers
        self._queue_limit_tokens = queue_tokens
        self._asked: dict[Question, Request] = {}
        self._waiters: dict[str, asyncio.Future[None]] = {}
        self.refused_all_at = -math.inf

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
            raise errors.DeadlineExceeded("the deadline passed before the request could be sent", self.retry_s())
        if (known := self._answers.find(self._roster.fingerprint, question)) is not None:
            self._metrics.cached.inc()
            return Reply(known, 0.0, 0.0)
        request = self._join(question, deadline) or self._begin(request_id, question, added, deadline)
        answered: asyncio.Future[None] = loop.create_future()
        request.waiters[request_id] = self._waiters[request_id] = answered
        try:
            self._dispatcher.pump()
            async with asyncio.timeout_at(deadline):
                await answered
        except TimeoutError:
            self._learn(request_id, request, is_late=True)
            raise errors.DeadlineExceeded("no answer before the deadline", self.retry_s()) from None
        finally:
            self._leave(request_id, request)
        return self._reply(request_id, request, asked_at)

    def refusal_of_all(self, deadline: float) -> errors.Overloaded | None:
        """What any request with that deadline would be told now, whatever it asks; so that nobody need look. None where
        there may be one that is let in, or answers are kept, which cost nothing."""
        now = asyncio.get_running_loop().time()
        if self._answers.most_bytes or deadline <= now:
            return None
        loads = loads_by_size(self._roster, self._dispatcher.line.lane_tokens, now)
        refusal = refusal_of_all(deadline - now, loads, self._queue_limit_tokens)
        if refusal is not None:
            self.refused_all_at = now
        return refusal

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
        self._dispatcher.hasten(request, deadline)
        return request

    def _begin(self, request_id: str, question: Question, added: tuple[int, ...], deadline: float) -> Request:
        prefix, suffixes, state_tokens = question
        _check_size(prefix, suffixes)
        now = asyncio.get_running_loop().time()
        added = added or tuple(len(suffix) // TOKEN_BYTES for suffix in suffixes)
        due_at = due(now, deadline)
        request = Request(request_id, prefix, suffixes, state_tokens, added, deadline, now, due_at, self._on_done)
        request.state = state_of(prefix, state_tokens, TOKEN_BYTES)
        tokens = request.tokens
        demand = Demand(tokens, max(1, tokens - state_tokens), deadline - now, can_split=len(suffixes) > 1)
        load = measure_load(self._roster, self._dispatcher.line.lane_tokens, tokens, now)
        admit(demand, load, self._queue_limit_tokens)
        request.is_to_wait = demand.is_to_wait(load)
        self._asked[question] = request
        self._dispatcher.add(request)
        return request

    def _on_done(self, request: Request) -> None:
        if isinstance(request.outcome, errors.PoisonedRequest):
            log.error("poisoned_request", request=request.request_id, tokens=request.tokens)
        if isinstance(request.outcome, tuple):
            self._answers.keep(self._roster.fingerprint, _question_of(request), request.outcome)
        for request_id in request.waiters:
            if not (answered := self._waiters[request_id]).done():
                answered.set_result(None)

    def _leave(self, request_id: str, request: Request) -> None:
        """Whether answered, failed, expired or gone: it waits no more. The last one ends the request."""
        del self._waiters[request_id]
        del request.waiters[request_id]
        if request.waiters:
            return
        question = _question_of(request)
        if self._asked.get(question) is request:
            del self._asked[question]
        if request.outcome is None:
            self._dispatcher.drop(request)

    def _reply(self, request_id: str, request: Request, asked_at: float) -> Reply:
        outcome = request.outcome
        if isinstance(outcome, tuple):
            self._learn(request_id, request, is_late=False)
            total_ms = (asyncio.get_running_loop().time() - asked_at) * 1000
            return Reply(outcome, max(0.0, total_ms - request.inference_ms), request.inference_ms)
        error = outcome or errors.EngineFailed("answered without an outcome. This is a bug.")
        if is_late := isinstance(error, errors.DeadlineExceeded):
            self._learn(request_id, request, is_late=True)
        # Each of those who wait is told of itself.
        raise type(error)(str(error).replace(request.request_id, request_id), self.retry_s() if is_late else None)

    def _learn(self, request_id: str, request: Request, *, is_late: bool) -> None:
        """From the one that was let in: those who joined it may have come late already. Not from who met a fault."""
        is_undisturbed = request.admitted > self._roster.pace.forgotten_at
        if request.is_to_wait and is_undisturbed and request.request_id == request_id:
            self._roster.caution.learn(is_late=is_late)

    def retry_s(self) -> float:
        """For whom the deadline has passed."""
        return retry_s(self._roster, self._dispatcher.line.tokens)


def _question_of(request: Request) -> Question:
    return request.prefix, request.suffixes, request.state_tokens


def _check_size(prefix: bytes, suffixes: tuple[bytes, ...]) -> None:
    """Now, while someone can be told, and not when it is sent."""
    if len(prefix) + sum(map(len, suffixes)) + FRAME_BYTES_A_SUFFIX * len(suffixes) > MAX_FRAME_BYTES - FRAME_BYTES:
        raise errors.InvalidRequest(
            "the request's prompts are too many or too long for one message: send fewer questions at a time",
            loc=("body", "questions"),
            kind="too_long",
        )
