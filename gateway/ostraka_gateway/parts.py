"""What is asked, the parts it is read in, and what is to be done about them. Pure."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from ostraka_gateway.worker import State, Worker, WorkerState
from ostraka_shared import errors
from ostraka_shared.messages import TOKEN_BYTES, Cancel, Work

MAX_BLAME = 2
KILLS_A_CRASH = 2
"""Kills from outside are no fault of what was running; but where each kill hits the same request, something kills for
it: a watcher of memory other than the kernel, say."""


Outcome = tuple[float, ...] | errors.ServingError
"""P(yes) of each prompt, or what is to be raised."""


class Waiter(Protocol):
    """Who asked; done once it is answered, late or gone."""

    def done(self) -> bool: ...


@dataclass(slots=True, eq=False)
class Request:
    """`deadline`, the latest of all who wait for it, and `admitted` are instants of the gateway's clock. `added`: the
    tokens each prompt adds to what is read, given those that share its beginning. `due_at`: how urgent it is.

    `is_to_wait`: for longer than it takes to read, as was predicted when it was let in. Once there is an `outcome`,
    `on_done` is to be told.
    """

    request_id: str
    prefix: bytes
    suffixes: tuple[bytes, ...]
    state_tokens: int
    added: tuple[int, ...]
    deadline: float
    admitted: float
    due_at: float
    on_done: Callable[["Request"], None]
    state: State | None = None
    parts: list["Part"] = field(default_factory=list)
    answers: list[float] = field(default_factory=list)
    inference_ms: float = 0.0
    crashes: int = 0
    kills: int = 0
    runs_alone: bool = False
    is_to_wait: bool = False
    outcome: Outcome | None = None
    waiters: dict[str, Waiter] = field(default_factory=dict)

    @property
    def blame(self) -> int:
        """As a number of crashes."""
        return self.crashes + self.kills // KILLS_A_CRASH

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
    """Some prompts of a request, by their places in it: what one worker reads. `holders` have it, by attempt, and were
    told to answer by `sent_deadlines`."""

    request: Request
    part_id: str
    places: Sequence[int]
    tokens: int
    attempt: int = 0
    lane: int = 0
    first_ticket: int = 0
    ticket: int = 0
    holders: dict[Worker, int] = field(default_factory=dict)
    sent_deadlines: dict[int, float] = field(default_factory=dict)
    answer: tuple[float, ...] | None = None

    @property
    def is_wanted(self) -> bool:
        return self.answer is None and self.request.outcome is None

    @property
    def suffixes(self) -> tuple[bytes, ...]:
        return tuple(self.request.suffixes[place] for place in self.places)

    @property
    def is_missed(self) -> bool:
        """Wanted, and neither waiting nor with a worker that can be relied on: another is to have it, if that would
        not be one too many."""
        is_relied_on = any(holder.state is not WorkerState.SUSPECT for holder in self.holders)
        is_free = self.is_wanted and not self.ticket and not is_relied_on
        return is_free and not (self.holders and is_dangerous(self.request))

    def next_attempt(self, now: float) -> Work:
        request = self.request
        self.attempt += 1
        self.sent_deadlines[self.attempt] = request.deadline
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


class Parts:
    """All parts that somebody waits for, or that a worker may still answer, by their ids."""

    def __init__(self) -> None:
        self._parts: dict[str, Part] = {}

    def __iter__(self) -> Iterator[Part]:
        return iter(self._parts.values())

    def find(self, part_id: str) -> Part | None:
        return self._parts.get(part_id)

    def add(self, request: Request, part_id: str, places: Sequence[int], tokens: int) -> Part:
        part = self._parts[part_id] = Part(request, part_id, places, tokens)
        request.parts.append(part)
        return part

    def replace(self, part: Part, by: Sequence[tuple[str, Sequence[int], int]]) -> list[Part]:
        """Before it was ever sent."""
        del self._parts[part.part_id]
        part.request.parts = []
        return [self.add(part.request, *each) for each in by]

    def release(self, worker: Worker, part_id: str, attempt: int) -> Part | None:
        """The part this answer is for, if it was sent to this worker, which then holds it no more."""
        part = self.find(part_id)
        if part and part.holders.get(worker, attempt) != attempt:
            return None  # of an attempt before this worker joined again: it holds the newer one still
        worker.release(part_id)
        return part if part and part.holders.pop(worker, None) is not None else None

    def held_by(self, worker: Worker) -> list[Part]:
        return [part for part_id in worker.held if (part := self.find(part_id)) and worker in part.holders]

    def forget_if_free(self, part: Part) -> None:
        if not part.holders and not part.is_wanted:
            self._parts.pop(part.part_id, None)


def was_running(worker: Worker, part: Part) -> bool:
    """Known; or it was held alone by a worker whose last STARTED may have died with it."""
    return part.part_id in worker.started or (not worker.started and len(worker.held) == 1)


def may_have_run(worker: Worker, part: Part) -> bool:
    """In doubt it runs alone next time, which harms no innocent one."""
    return part.part_id in worker.started or not worker.started


def is_dangerous(request: Request) -> bool:
    """A third worker might stand still as well, or die."""
    suspects = {h for part in request.parts for h in part.holders if h.state is WorkerState.SUSPECT}
    return request.blame + len(suspects) >= MAX_BLAME
