"""Which waiting requests are read together: first come, first served, under a token budget. It never waits to fill.

Where several gateways ask, they take turns. Those larger than the budget wait in lines of their own, one for each size,
since each is read alone, over several calls. Pure: the time comes in as `now`, in seconds of any monotonic clock.
"""

from collections.abc import Iterator

from ostraka_shared.reading_rules import LARGEST_SIZE, size_of
from ostraka_worker.fair_line import FairLine, Waiting


class Batcher:
    def __init__(self, batch_tokens: int) -> None:
        self._batch_tokens = batch_tokens
        self._lines = [FairLine() for _ in range(LARGEST_SIZE + 1)]
        self.queued_tokens = 0

    def __len__(self) -> int:
        return sum(map(len, self._lines))

    def __iter__(self) -> Iterator[Waiting]:
        for line in self._lines:
            yield from line

    @property
    def sizes(self) -> set[int]:
        """Of which someone waits."""
        return {size for size, line in enumerate(self._lines) if line}

    def size_of(self, waiting: Waiting) -> int:
        return size_of(waiting.tokens, self._batch_tokens)

    def add(self, waiting: Waiting) -> None:
        self._line_of(waiting).append(waiting)
        self.queued_tokens += waiting.tokens

    def drop_expired(self, now: float) -> list[Waiting]:
        """Takes out what nobody waits for any more."""
        expired = [waiting for waiting in self if waiting.deadline <= now]
        for waiting in expired:
            self._remove(waiting)
        return expired

    def take_out(self, request_id: str, attempt: int, gateway: int = 0) -> Waiting | None:
        for waiting in self:
            if waiting.is_attempt(gateway, request_id, attempt):
                self._remove(waiting)
                return waiting
        return None

    def next_batch(self, size: int = 0) -> list[Waiting]:
        """The first of that size, then the next ones in order while they fit; no one is overtaken. So one that is
        larger than the budget is alone."""
        line, tokens = self._lines[size], 0
        batch: list[Waiting] = []
        while (head := line.head) and (not batch or tokens + head.tokens <= self._batch_tokens):
            batch.append(line.popleft())
            tokens += head.tokens
        self.queued_tokens -= tokens
        return batch

    def clear(self, gateway: int = 0) -> None:
        """Forgets what this gateway asked."""
        for line in self._lines:
            line.clear(gateway)
        self.queued_tokens = sum(waiting.tokens for waiting in self)

    def _remove(self, waiting: Waiting) -> None:
        self._line_of(waiting).remove(waiting)
        self.queued_tokens -= waiting.tokens

    def _line_of(self, waiting: Waiting) -> FairLine:
        return self._lines[self.size_of(waiting)]
