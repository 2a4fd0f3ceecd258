"""The in-flight table: every accepted request is here until its one answer or error. What happened comes in, what is to
be done comes out; it knows no socket and no clock.

    add ──► waiting ──send──► held ──RESULT──► answered ─► all parts: Done
              ▲  a request of many prompts is   │ FAILED ─────────────► Done, with the error
              │  cut into parts when it is sent │
              ├── worker lost ◄─────────────────┤ (the part alone; running in 2 lost workers: poison)
              └── worker suspect ◄──────────────┘ (a copy: the first answer wins, the other is withdrawn, or compared)

Deciding has no side effect, so running twice is harmless; answering twice cannot happen.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from ostraka_gateway.roster import Roster, Worker, WorkerState
from ostraka_gateway.routing import candidates, is_long
from ostraka_gateway.splitting import Reader, Reading, cut, plan_shares
from ostraka_gateway.waiting_line import RETURNED_S, WaitingLine, due
from ostraka_shared import errors
from ostraka_shared.messages import TOKEN_BYTES, Cancel, Failed, Result, Work

MAX_CRASHES = 2
CRASH_REASONS = frozenset({"exit", "silent"})
"""Of a worker's loss. Any other is no fault of what it held: it said BYE, joined anew, or its link was cut."""
SUSPECT = "suspect"


class Waiter(Protocol):
    """Who asked; done once it is answered, late or gone."""

    def done(self) -> bool: ...


@dataclass(slots=True, eq=False)
class Request:
    """`deadline`, the latest of all who wait for it, and `admitted` are instants of the gateway's clock. `added`: the
    tokens each prompt adds to what is read, given those that share its beginning.

    `outcome`: its answers, or what is to be raised.
    """

    request_id: str
    prefix: bytes
    suffixes: tuple[bytes, ...]
    state_tokens: int
    added: tuple[int, ...]
    deadline: float
    admitted: float
    parts: list["Part"] = field(default_factory=list)
    answers: list[float] = field(default_factory=list)
    inference_ms: float = 0.0
    crashes: int = 0
    runs_alone: bool = False
    outcome: tuple[float, ...] | errors.ServingError | None = None
    waiters: dict[str, Waiter] = field(default_factory=dict)

    @property
    def is_awaited(self) -> bool:
        return not all(waiter.done() for waiter in self.waiters.values())

    @property
    def prefix_tokens(self) -> int:
        return len(self.prefix) // TOKEN_BYTES

    @property
    def tokens(self) -> int:
        return self.prefix_tokens + sum(self.added)


@dataclass(slots=True, eq=False)
class Part:
    """Some prompts of a request, by their places in it: what one worker reads. `holders` have it, by attempt."""

    request: Request
    part_id: str
    places: Sequence[int]
    tokens: int
    attempt: int = 0
    first_ticket: int = 0
    ticket: int = 0
    sent_deadline: float = 0.0
    holders: dict[Worker, int] = field(default_factory=dict)
    answer: tuple[float, ...] | None = None

    @property
    def is_wanted(self) -> bool:
        return self.answer is None and self.request.outcome is None

    @property
    def suffixes(self) -> tuple[bytes, ...]:
        return tuple(self.request.suffixes[place] for place in self.places)

    def next_attempt(self, now: float) -> Work:
        request = self.request
        self.attempt += 1
        self.sent_deadline = request.deadline
        left_ms = max(1, int((request.deadline - now) * 1000))
        return Work(self.part_id, self.attempt, left_ms, request.prefix, self.suffixes, request.state_tokens)


@dataclass(frozen=True, slots=True)
class Send:
    worker: Worker
    part: Part
    work: Work


@dataclass(frozen=True, slots=True)
class Withdraw:
    worker: Worker
    message: Cancel


@dataclass(frozen=True, slots=True)
class Done:
    request: Request


@dataclass(frozen=True, slots=True)
class Redispatched:
    """`reason`: why its worker is no longer relied on."""

    part: Part
    reason: str


@dataclass(frozen=True, slots=True)
class Late:
    """A result nobody waited for. `is_same`: bit for bit what was answered; None where nothing was."""

    part_id: str
    is_same: bool | None = None


Instruction = Send | Withdraw | Done | Redispatched | Late


class InFlight:
    def __init__(self, roster: Roster) -> None:
        self._roster = roster
        self._parts: dict[str, Part] = {}
        self._turn = 0
        self.line: WaitingLine[Part] = WaitingLine()

    def add(self, request: Request) -> None:
        request.answers = [0.0] * len(request.suffixes)
        self._add_part(request, request.request_id, range(len(request.suffixes)), request.tokens)
        self._wait(request.parts[0])

    def hasten(self, request: Request, deadline: float) -> None:
        """Someone else waits for it as well."""
        request.deadline = max(request.deadline, deadline)
        for part in request.parts:
            if part.ticket and deadline < due(request.admitted, part.request.deadline):
                self.line.push(part, deadline, self._lane(part))

    def pump(self, now: float) -> list[Instruction]:
        """What can be sent, to be called whenever room may have come. Nothing overtakes a head that waits for room; one
        that waits for a long request's end, and all workers read one, lets the shorter ones pass."""
        sent: list[Instruction] = []
        while sending := self._next(now):
            sent += sending
        return sent

    def answered(self, worker: Worker, result: Result) -> list[Instruction]:
        part = self._release(worker, result.request_id, result.attempt)
        if part is None:
            return [Late(result.request_id)]
        if not part.is_wanted:
            self._forget_if_free(part)
            return [Late(result.request_id, None if part.answer is None else part.answer == result.p_yes)]
        if len(result.p_yes) != len(part.places):
            return self._finish(part.request, errors.EngineFailed("the worker answered another number of prompts"))
        request = part.request
        part.answer = result.p_yes
        request.inference_ms = max(request.inference_ms, result.inference_ms)
        for place, value in zip(part.places, result.p_yes, strict=True):
            request.answers[place] = value
        if all(each.answer is not None for each in request.parts):
            return self._finish(request, tuple(request.answers))
        return self._withdraw(part)

    def failed(self, worker: Worker, failed: Failed) -> list[Instruction]:
        part = self._release(worker, failed.request_id, failed.attempt)
        if part is None:
            return [Late(failed.request_id)]
        if not part.is_wanted:
            self._forget_if_free(part)
            return [] if failed.code == errors.Cancelled.code else [Late(failed.request_id)]
        is_late = failed.code == errors.DeadlineExceeded.code
        if failed.code == errors.Cancelled.code or (is_late and part.sent_deadline < part.request.deadline):
            self._wait_again(part)  # someone with more time has come to wait for it meanwhile
            return []
        error = errors.DeadlineExceeded(failed.message) if is_late else errors.EngineFailed(failed.message)
        return self._finish(part.request, error)

    def lost(self, worker: Worker, reason: str) -> list[Instruction]:
        """What it held waits again, in its old order, before all that came later."""
        held = [part for part in self._held_by(worker) if worker in part.holders]
        blamed = {
            part.request for part in held if reason in CRASH_REASONS and part.is_wanted and _was_running(worker, part)
        }
        for request in blamed:
            request.crashes += 1
        for part in held:
            del part.holders[worker]
            if reason in CRASH_REASONS:
                part.request.runs_alone |= _may_have_run(worker, part)
        done: list[Instruction] = []
        for request in blamed:
            if request.crashes >= MAX_CRASHES:
                error = f"{MAX_CRASHES} workers died while running request {request.request_id}"
                done += self._finish(request, errors.PoisonedRequest(error))
        return done + self._redispatch(held, reason)

    def suspected(self, worker: Worker) -> list[Instruction]:
        """Others get copies of what it holds; but for what stands still in two workers, and may be the reason why."""
        held = [part for part in self._held_by(worker) if part.is_wanted]
        for part in held:
            part.request.runs_alone |= _may_have_run(worker, part)
        return self._redispatch([part for part in held if not _is_dangerous(part.request)], SUSPECT)

    def trusted(self, worker: Worker) -> None:
        """No longer suspect: copies that still wait are not needed."""
        for part in self._held_by(worker):
            self.line.remove(part)

    def drop(self, request: Request) -> list[Instruction]:
        """Nobody waits for it any more."""
        return self._finish(request, errors.ClientLeft("nobody waits for the answer any more"))[1:]

    def _next(self, now: float) -> list[Instruction]:
        ready = self._roster.ready_workers()
        for part in self.line.heads():
            if not part.request.is_awaited:  # in this very turn of the event loop; it is dropped in the next
                self.line.remove(part)
                return self._next(now)
            able = candidates((worker for worker in ready if _may_take(worker, part)), part.tokens)
            if able:
                return self._send(part, able, now)
            if not (ready and all(worker.holds_long for worker in ready) and self._lane(part)):
                return []
        return []

    def _send(self, part: Part, able: list[Worker], now: float) -> list[Instruction]:
        self.line.remove(part)
        parts = [part]
        if len(able) > 1 and len(part.places) > 1 and part.attempt == 0 and not part.request.runs_alone:
            parts = self._split(part, able, now)
        sent: list[Instruction] = []
        for each, worker in zip(parts, able, strict=False):
            self._turn += 1
            work = each.next_attempt(now)
            worker.hold(each.part_id, each.tokens, self._turn, is_alone=each.request.runs_alone)
            each.holders[worker] = work.attempt
            sent.append(Send(worker, each, work))
        return sent

    def _split(self, part: Part, able: list[Worker], now: float) -> list[Part]:
        """By the order of their bytes, so that prompts that begin alike stay together."""
        request = part.request
        readers = [Reader(worker.predicted_s, worker.speed) for worker in able]
        reading = Reading.of(request.prefix_tokens, sum(request.added))
        shares = plan_shares(reading, readers, request.deadline - now, is_quiet=not self.line.count)
        if len(shares) == 1:
            return [part]
        order = sorted(part.places, key=request.suffixes.__getitem__)
        groups = cut([request.added[place] for place in order], shares)
        if len(groups) == 1:
            return [part]
        request.parts = []
        del self._parts[part.part_id]
        for number, group in enumerate(groups):
            places = sorted(order[index] for index in group)
            tokens = request.prefix_tokens + sum(request.added[place] for place in places)
            self._add_part(request, f"{request.request_id}/{number}", places, tokens)
        return request.parts

    def _add_part(self, request: Request, part_id: str, places: Sequence[int], tokens: int) -> None:
        part = Part(request, part_id, places, tokens)
        request.parts.append(part)
        self._parts[part_id] = part

    def _redispatch(self, parts: list[Part], reason: str) -> list[Instruction]:
        again: list[Instruction] = []
        for part in parts:
            is_relied_on = any(holder.state is not WorkerState.SUSPECT for holder in part.holders)
            if not part.is_wanted:
                self._forget_if_free(part)
            elif not part.ticket and not is_relied_on and not (part.holders and _is_dangerous(part.request)):
                self._wait_again(part)
                again.append(Redispatched(part, reason))
        return again

    def _release(self, worker: Worker, part_id: str, attempt: int) -> Part | None:
        """The part this answer is for, if it was sent to this worker."""
        part = self._parts.get(part_id)
        if part and part.holders.get(worker, attempt) != attempt:
            return None  # of an attempt before this worker joined again: it holds the newer one still
        worker.release(part_id)
        return part if part and part.holders.pop(worker, None) is not None else None

    def _finish(self, request: Request, outcome: tuple[float, ...] | errors.ServingError) -> list[Instruction]:
        request.outcome = outcome
        done: list[Instruction] = [Done(request)]
        for part in request.parts:
            done += self._withdraw(part)
        return done

    def _withdraw(self, part: Part) -> list[Instruction]:
        self.line.remove(part)
        self._forget_if_free(part)
        return [Withdraw(worker, Cancel(part.part_id, attempt)) for worker, attempt in part.holders.items()]

    def _forget_if_free(self, part: Part) -> None:
        """A part is remembered for as long as a worker may still answer it."""
        if not part.holders and not part.is_wanted:
            self._parts.pop(part.part_id, None)

    def _held_by(self, worker: Worker) -> list[Part]:
        return [part for part_id in worker.held if (part := self._parts.get(part_id)) and worker in part.holders]

    def _wait(self, part: Part) -> None:
        self.line.push(part, due(part.request.admitted, part.request.deadline), self._lane(part))

    def _wait_again(self, part: Part) -> None:
        self.line.push(part, due(part.request.admitted, part.request.deadline) - RETURNED_S, self._lane(part))

    def _lane(self, part: Part) -> str:
        """Its own for those who need more than room in a worker's credit."""
        if part.request.runs_alone:
            return "alone"
        ready = self._roster.ready_workers()
        return "long" if ready and all(is_long(worker, part.tokens) for worker in ready) else ""


def _may_take(worker: Worker, part: Part) -> bool:
    return worker not in part.holders and not (part.request.runs_alone and worker.held)


def _was_running(worker: Worker, part: Part) -> bool:
    """Known; or it was held alone by a worker whose last STARTED may have died with it."""
    return part.part_id in worker.started or (not worker.started and len(worker.held) == 1)


def _may_have_run(worker: Worker, part: Part) -> bool:
    """In doubt it runs alone next time, which harms no innocent one."""
    return part.part_id in worker.started or not worker.started


def _is_dangerous(request: Request) -> bool:
    """A third worker might stand still as well, or die."""
    suspects = {h for part in request.parts for h in part.holders if h.state is WorkerState.SUSPECT}
    return request.crashes + len(suspects) >= MAX_CRASHES
