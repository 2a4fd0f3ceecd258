"""Which waiting requests are read together: first come, first served, under a token budget. It never waits to fill.

Those larger than the budget wait in a line of their own, since each is read alone, over several calls. Pure: the time
comes in as `now`, in seconds of any monotonic clock.
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
        self._short: deque[Waiting] = deque()
        self._long: deque[Waiting] = deque()
        self.queued_tokens = 0

    def __len__(self) -> int:
        return len(self._short) + len(self._long)

    def add(self, waiting: Waiting) -> None:
        (self._long if waiting.tokens > self._batch_tokens else self._short).append(waiting)
        self.queued_tokens += waiting.tokens

    def drop_expired(self, now: float) -> list[Waiting]:
        """Takes out what nobody waits for any more."""
        expired = [waiting for line in (self._short, self._long) for waiting in line if waiting.deadline <= now]
        for waiting in expired:
            self._remove(waiting)
        return expired

    def take_out(self, request_id: str, attempt: int) -> Waiting | None:
        for line in (self._short, self._long):
            for waiting in line:
                if (waiting.work.request_id, waiting.work.attempt) == (request_id, attempt):
                    self._remove(waiting)
                    return waiting
        return None

    def next_batch(self) -> list[Waiting]:
        """The first of the short ones, then the next ones in order while they fit; no one is overtaken."""
        batch: list[Waiting] = []
        tokens = 0
        while self._short and tokens + self._short[0].tokens <= self._batch_tokens:
            batch.append(self._short.popleft())
            tokens += batch[-1].tokens
        self.queued_tokens -= tokens
        return batch

    def next_long(self) -> list[Waiting]:
        """The first of the long ones, alone."""
        if not self._long:
            return []
        self.queued_tokens -= self._long[0].tokens
        return [self._long.popleft()]

    def clear(self) -> None:
        self._short.clear()
        self._long.clear()
        self.queued_tokens = 0

    def _remove(self, waiting: Waiting) -> None:
        (self._long if waiting.tokens > self._batch_tokens else self._short).remove(waiting)
        self.queued_tokens -= waiting.tokens
