"""Whose model call is next. No clock of its own: time comes in as `now`, in seconds of any monotonic clock.

    add ──► waiting (batcher) ──► running ──► finished
               │                     │  one batch of each size, in turns
               └─ cancelled, expired ┘  between two calls: nothing more is read of it

A batch of short requests is of size 0, and of each larger size one request is read at a time, alone. Between the sizes
time is shared: so a short request waits for one call of a longer one at most, and those that wait then have as long as
that call took; and a page does not wait for a book. However costly its calls are, no size takes more than its share.
"""

from ostraka_shared.errors import Cancelled, DeadlineExceeded
from ostraka_worker.batcher import Batcher
from ostraka_worker.fair_line import Waiting
from ostraka_worker.inference import BatchRun
from ostraka_worker.running import Placed, Running
from ostraka_worker.snapshots import Snapshots
from ostraka_worker.turns import Turns


class Schedule:
    """Every request that is added is given back exactly once: by `finish`, `cancel` or `expire`."""

    def __init__(self, batch_tokens: int, snapshots: Snapshots) -> None:
        self._batch_tokens = batch_tokens
        self._snapshots = snapshots
        self._batcher = Batcher(batch_tokens)
        self._running: dict[int, Running] = {}
        self._turns = Turns()

    @property
    def queued_requests(self) -> int:
        return len(self._batcher)

    @property
    def queued_tokens(self) -> int:
        return self._batcher.queued_tokens

    def held_tokens(self, but_for: int = 0) -> int:
        """Waiting and running, of all gateways but one."""
        held = [*self._batcher, *(waiting for running in self._running.values() for _, waiting in running.kept)]
        return sum(waiting.tokens for waiting in held if waiting.gateway != but_for)

    @property
    def is_idle(self) -> bool:
        return not len(self._batcher) and not self._running

    def add(self, waiting: Waiting) -> None:
        size = self._batcher.size_of(waiting)
        if size not in self._wanting:
            self._turns.join(size)
        self._batcher.add(waiting)

    def turn(self, now: float) -> Running | None:
        """Whose `upcoming` call is to be made now; one that has none left is to be finished."""
        size = self._turns.next(self._wanting)
        if size is not None and size not in self._running:
            self._running[size] = self._begin(size, now)
        return None if size is None else self._running[size]

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
        if waiting := self._batcher.take_out(request_id, attempt, gateway):
            return waiting
        for running in list(self._running.values()):
            for place, waiting in running.kept:
                if waiting.is_attempt(gateway, request_id, attempt):
                    running.drop(place, Cancelled("nobody waits for it any more"))
                    self._end_if_empty(running)
                    return waiting
        return None

    def expire(self, now: float) -> list[Waiting]:
        """Those whose deadline has passed: worth no further call."""
        expired = self._batcher.drop_expired(now)
        for running in list(self._running.values()):
            for place, waiting in running.kept:
                if running.upcoming is not None and waiting.deadline <= now:
                    running.drop(place, DeadlineExceeded("the deadline passed before the last model call"))
                    expired.append(waiting)
            self._end_if_empty(running)
        return expired

    def clear(self, gateway: int = 0) -> None:
        """Forgets what this gateway asked."""
        self._batcher.clear(gateway)
        for running in list(self._running.values()):
            for place, waiting in running.kept:
                if waiting.gateway == gateway:
                    running.drop(place, Cancelled("the gateway that asked has gone"))
            self._end_if_empty(running)

    @property
    def _wanting(self) -> set[int]:
        """The sizes of what waits or is being read."""
        return self._batcher.sizes | self._running.keys()

    def _end_if_empty(self, running: Running) -> None:
        if not running.kept:
            self.finish(running)

    def _begin(self, size: int, now: float) -> Running:
        batch = self._batcher.next_batch(size)
        run = BatchRun([waiting.work for waiting in batch], self._batch_tokens, self._snapshots)
        return Running(batch, run, now, size)
