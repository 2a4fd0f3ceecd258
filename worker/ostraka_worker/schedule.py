"""Whose model call is next. No clock of its own: time comes in as `now`, in seconds of any monotonic clock.

    add ──► waiting (batcher) ──► running ──► finished
               │                     │  a request larger than a batch, and a batch of smaller ones: in turns
               └─ cancelled, expired ┘  between two calls: nothing more is read of it

So a short request waits for one call of a long one at most, and those that wait then have as long as that call took:
however costly its calls are, a long request takes half of the worker.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

from ostraka_shared.errors import Cancelled, DeadlineExceeded, OstrakaError
from ostraka_worker.batcher import Batcher
from ostraka_worker.fair_line import Waiting
from ostraka_worker.inference import BatchRun, Call, places
from ostraka_worker.snapshots import Snapshots

Placed = tuple[int, Waiting]
"""A request and its place in its batch."""


@dataclass(slots=True, eq=False)
class Running:
    """A batch from its first call to its last. `upcoming` is the call to be made, None after the last; `inference_s`
    counts its own calls alone."""

    batch: list[Waiting]
    run: BatchRun
    begun: float
    inference_s: float = 0.0
    upcoming: Call | None = field(init=False, default=None)
    _calls: Iterator[Call] = field(init=False)
    _dropped: set[int] = field(init=False, default_factory=set)

    def __post_init__(self) -> None:
        self._calls = iter(self.run.calls)
        self.advance()

    @property
    def kept(self) -> list[Placed]:
        """Those that are still to be answered."""
        return [(place, waiting) for place, waiting in enumerate(self.batch) if place not in self._dropped]

    def request_ids(self, call: Call, gateway: int = 0) -> tuple[str, ...]:
        """Of that gateway's requests in the call."""
        asked = (self.batch[place] for place in places(call))
        return tuple(waiting.work.request_id for waiting in asked if waiting.gateway == gateway)

    def tokens_by(self, call: Call, gateways: int) -> list[int]:
        """What the call reads for each gateway."""
        tokens = [0] * gateways
        for place, step in call:
            tokens[self.batch[place].gateway] += step.tokens
        return tokens

    def advance(self) -> None:
        """To the next call of which something is still wanted."""
        self.upcoming = next((wanted for call in self._calls if (wanted := self.run.wanted(call))), None)

    def drop(self, place: int, error: OstrakaError) -> None:
        self._dropped.add(place)
        self.run.failures[place] = error
        if self.upcoming is not None:
            self.upcoming = self.run.wanted(self.upcoming)
            if not self.upcoming:
                self.advance()


class Schedule:
    """Every request that is added is given back exactly once: by `finish`, `cancel` or `expire`."""

    def __init__(self, batch_tokens: int, snapshots: Snapshots) -> None:
        self._batch_tokens = batch_tokens
        self._snapshots = snapshots
        self._batcher = Batcher(batch_tokens)
        self._short: Running | None = None
        self._long: Running | None = None
        self._owed_s = 0.0
        """What the short ones are owed: the long one's last call, less what they have had since."""

    @property
    def queued_requests(self) -> int:
        return len(self._batcher)

    @property
    def queued_tokens(self) -> int:
        return self._batcher.queued_tokens

    def held_tokens(self, but_for: int = 0) -> int:
        """Waiting and running, of all gateways but one."""
        held = [*self._batcher, *(waiting for running in self._running for _, waiting in running.kept)]
        return sum(waiting.tokens for waiting in held if waiting.gateway != but_for)

    @property
    def is_idle(self) -> bool:
        return not len(self._batcher) and not self._short and not self._long

    def add(self, waiting: Waiting) -> None:
        self._batcher.add(waiting)

    def turn(self, now: float) -> Running | None:
        """Whose `upcoming` call is to be made now; one that has none left is to be finished."""
        if self._short is None:
            self._short = self._begin(self._batcher.next_batch(), now)
        if self._short is None:
            self._owed_s = 0.0
        elif self._owed_s > 0:
            return self._short
        if self._long is None:
            self._long = self._begin(self._batcher.next_long(), now)
        return self._long or self._short

    def ran(self, running: Running, seconds: float) -> None:
        """To be told of each call that was made."""
        running.inference_s += seconds
        self._owed_s = seconds if running is self._long else self._owed_s - seconds
        running.advance()

    def finish(self, running: Running) -> list[Placed]:
        if running is self._long:
            self._long = None
        else:
            self._short = None
        return running.kept

    def cancel(self, request_id: str, attempt: int, gateway: int = 0) -> Waiting | None:
        """None where it is not here any more."""
        if waiting := self._batcher.take_out(request_id, attempt, gateway):
            return waiting
        for running in self._running:
            for place, waiting in running.kept:
                if waiting.is_attempt(gateway, request_id, attempt):
                    running.drop(place, Cancelled("nobody waits for it any more"))
                    self._end_if_empty(running)
                    return waiting
        return None

    def expire(self, now: float) -> list[Waiting]:
        """Those whose deadline has passed: worth no further call."""
        expired = self._batcher.drop_expired(now)
        for running in self._running:
            for place, waiting in running.kept:
                if running.upcoming is not None and waiting.deadline <= now:
                    running.drop(place, DeadlineExceeded("the deadline passed before the last model call"))
                    expired.append(waiting)
            self._end_if_empty(running)
        return expired

    def clear(self, gateway: int = 0) -> None:
        """Forgets what this gateway asked."""
        self._batcher.clear(gateway)
        for running in self._running:
            for place, waiting in running.kept:
                if waiting.gateway == gateway:
                    running.drop(place, Cancelled("the gateway that asked has gone"))
            self._end_if_empty(running)

    @property
    def _running(self) -> list[Running]:
        return [running for running in (self._short, self._long) if running]

    def _end_if_empty(self, running: Running) -> None:
        if not running.kept:
            self.finish(running)

    def _begin(self, batch: list[Waiting], now: float) -> Running | None:
        if not batch:
            return None
        run = BatchRun([waiting.work for waiting in batch], self._batch_tokens, self._snapshots)
        return Running(batch, run, now)
