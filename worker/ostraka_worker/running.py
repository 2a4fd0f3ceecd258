"""A batch that is being read: its calls, and who of it still waits. Knows no socket and no clock."""

from collections.abc import Iterator
from dataclasses import dataclass, field

from ostraka_shared.errors import OstrakaError
from ostraka_worker.fair_line import Waiting
from ostraka_worker.inference import BatchRun, Call, places

Placed = tuple[int, Waiting]
"""A request and its place in its batch."""


@dataclass(slots=True, eq=False)
class Running:
    """A batch of requests of one size, from its first call to its last. `upcoming` is the call to be made, None after
    the last; `inference_s` counts its own calls alone."""

    batch: list[Waiting]
    run: BatchRun
    begun: float
    size: int = 0
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
