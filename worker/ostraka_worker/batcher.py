"""Which waiting requests are read together: first come, first served, under a token budget. It never waits to fill.

Pure: the time comes in as `now`, in seconds of any monotonic clock.
"""

from collections import deque
from dataclasses import dataclass

from ostraka_shared.messages import Work


@dataclass(frozen=True, slots=True)
class Waiting:
    """A request this worker took. `deadline` and `received` are instants of its own clock."""

    work: Work
    received: float
    deadline: float
    tokens: int

    @classmethod
    def take(cls, work: Work, now: float) -> "Waiting":
        return cls(work, now, now + work.deadline_ms / 1000, work.tokens)


class Batcher:
    def __init__(self, batch_tokens: int) -> None:
        self._batch_tokens = batch_tokens
        self._queue: deque[Waiting] = deque()
        self.queued_tokens = 0

    def __len__(self) -> int:
        return len(self._queue)

    def add(self, waiting: Waiting) -> None:
        self._queue.append(waiting)
        self.queued_tokens += waiting.tokens

    def drop_expired(self, now: float) -> list[Waiting]:
        """Takes out what nobody waits for any more."""
        expired = [waiting for waiting in self._queue if waiting.deadline <= now]
        if expired:
            self._queue = deque(waiting for waiting in self._queue if waiting.deadline > now)
            self.queued_tokens -= sum(waiting.tokens for waiting in expired)
        return expired

    def next_batch(self) -> list[Waiting]:
        """The first request whatever its size, then the next ones in order while they fit; no one is overtaken."""
        batch: list[Waiting] = []
        tokens = 0
        while self._queue and (not batch or tokens + self._queue[0].tokens <= self._batch_tokens):
            batch.append(self._queue.popleft())
            tokens += batch[-1].tokens
        self.queued_tokens -= tokens
        return batch

    def clear(self) -> None:
        self._queue.clear()
        self.queued_tokens = 0
