"""Whose model call is next. No clock of its own: time comes in as `now`, in seconds of any monotonic clock.

    add ──► waiting (batcher) ──► running ──► finished
               │                     │  one batch of each size, in turns
               └─ cancelled, expired ┘  between two calls: nothing more is read of it

A batch of short requests is of size 0, and of each larger size one request is read at a time, alone. Between the sizes
time is shared: so a short request waits for one call of a longer one at most, and those that wait then have as long as
that call took; and a page does not wait for a book. However costly its calls are, no size takes more than its share.
"""

from collections.abc import Callable

from ostraka_shared.errors import Cancelled, DeadlineExceeded, OstrakaError
from ostraka_worker.batcher import Batcher
from ostraka_worker.fair_line import Waiting
from ostraka_worker.inference import BatchRun
from ostraka_worker.running import Placed, Running
from ostraka_worker.snapshots import Snapshots
from ostraka_worker.turns import Turns


class Schedule:
    """Every request that is added is given back exactly once: by `finish`, `cancel` or `expire`. `waiting`: what is not
    being read yet."""

    def __init__(self, batch_tokens: int, snapshots: Snapshots) -> None:
        self._batch_tokens = batch_tokens
        self._snapshots = snapshots
        self.waiting = Batcher(batch_tokens)
        self._running: dict[int, Running] = {}
        self._turns = Turns()

    def held_tokens(self, but_for: int = 0) -> int:
        """Waiting and running, of all gateways but one."""
        held = [*self.waiting, *(waiting for running in self._running.values() for _, waiting in running.kept)]
        return sum(waiting.tokens for waiting in held if waiting.gateway != but_for)

    @property
    def is_idle(self) -> bool:
        return not len(self.waiting) and not self._running

    def add(self, waiting: Waiting) -> None:
        size = self.waiting.size_of(waiting)
        if size not in self._wanting:
            self._turns.join(size)
        self.waiting.add(waiting)

    def turn(self, now: float) -> Running | None:
        """Whose `upcoming` call is to be made now; one that has none left is to be finished."""
        size = self._turns.next(self._wanting)
        if size is None:
            return None
        if size not in self._running:
            batch = self.waiting.next_batch(size)
            run = BatchRun([waiting.work for waiting in batch], self._batch_tokens, self._snapshots)
            self._running[size] = Running(batch, run, now, size)
        return self._running[size]

    def ran(self, running: Running, seconds: float) -> None:
        """To be told of each call that was made."""
        running.inference_s += seconds
        self._turns.use(running.size, seconds)
        running.advance()

    def finish(self, running: Running) -> list[Placed]:
        del self._running[running.size]
        return running.kept

    def cancel(self, request_id: str, attempt: int, gateway: int = 0) -> Waiting | None:
        """None where it is not here any more."""
        if waiting := self.waiting.take_out(request_id, attempt, gateway):
            return waiting
        error = Cancelled("nobody waits for it any more")
        dropped = self._drop(lambda _, waiting: waiting.is_attempt(gateway, request_id, attempt), error)
        return dropped[0] if dropped else None

    def expire(self, now: float) -> list[Waiting]:
        """Those whose deadline has passed: worth no further call."""
        error = DeadlineExceeded("the deadline passed before the last model call")
        return [
            *self.waiting.drop_expired(now),
            *self._drop(lambda running, waiting: running.upcoming is not None and waiting.deadline <= now, error),
        ]

    def clear(self, gateway: int = 0) -> None:
        """Forgets what this gateway asked."""
        self.waiting.clear(gateway)
        self._drop(lambda _, waiting: waiting.gateway == gateway, Cancelled("the gateway that asked has gone"))

    @property
    def _wanting(self) -> set[int]:
        """The sizes of what waits or is being read."""
        return self.waiting.sizes | self._running.keys()

    def _drop(self, is_over: Callable[[Running, Waiting], bool], error: OstrakaError) -> list[Waiting]:
        """Of what is being read. A batch that nobody waits for any more has ended."""
        dropped = []
        for running in list(self._running.values()):
            for place, waiting in running.kept:
                if is_over(running, waiting):
                    running.drop(place, error)
                    dropped.append(waiting)
            if not running.kept:
                self.finish(running)
        return dropped
