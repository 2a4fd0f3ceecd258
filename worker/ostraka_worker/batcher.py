"""Which waiting requests are read together: first come, first served, under a token budget. It never waits to fill.

Where several gateways ask, they take turns. Those larger than the budget wait in a line of their own, since each is
read alone, over several calls. Pure: the time comes in as `now`, in seconds of any monotonic clock.
"""

from collections.abc import Iterator

from ostraka_worker.fair_line import FairLine, Waiting


class Batcher:
    def __init__(self, batch_tokens: int) -> None:
        self._batch_tokens = batch_tokens
        self._short = FairLine()
        self._long = FairLine()
        self.queued_tokens = 0

    def __len__(self) -> int:
        return len(self._short) + len(self._long)

    def __iter__(self) -> Iterator[Waiting]:
        yield from self._short
        yield from self._long

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

    def next_batch(self) -> list[Waiting]:
        """The first of the short ones, then the next ones in order while they fit; no one is overtaken."""
        batch: list[Waiting] = []
        tokens = 0
        while (head := self._short.head) and tokens + head.tokens <= self._batch_tokens:
            batch.append(self._short.popleft())
            tokens += head.tokens
        self.queued_tokens -= tokens
        return batch

    def next_long(self) -> list[Waiting]:
        """The first of the long ones, alone."""
        if not self._long:
            return []
        first = self._long.popleft()
        self.queued_tokens -= first.tokens
        return [first]

    def clear(self, gateway: int = 0) -> None:
        """Forgets what this gateway asked."""
        for line in (self._short, self._long):
            line.clear(gateway)
        self.queued_tokens = sum(waiting.tokens for waiting in self)

    def _remove(self, waiting: Waiting) -> None:
        self._line_of(waiting).remove(waiting)
        self.queued_tokens -= waiting.tokens

    def _line_of(self, waiting: Waiting) -> FairLine:
        return self._long if waiting.tokens > self._batch_tokens else self._short
