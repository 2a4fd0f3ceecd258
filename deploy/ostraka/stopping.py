"""What a signal to stop means: who told us says whether a load balancer has to look away first. Pure.

serving ──SIGTERM──► not ready: /readyz says so, everything is answered ──not_ready_s──► draining ──► gone
   └──SIGINT, SIGHUP: a terminal's, behind which nobody looks at readiness ────────────────┘
any signal clearly later than the first: what is left is killed
"""

import signal
from enum import Enum, auto

SECOND_SIGNAL_S = 1.0
"""Supervisors and terminals signal a group and its leader, or pass on what the leader got already: within milliseconds.
Who is told to wait and has had enough has taken longer to see it."""


class Wish(Enum):
    ANNOUNCE = auto()
    DRAIN = auto()
    KILL = auto()
    NOTHING = auto()


class Stopping:
    """`now` is any monotonic clock's, in seconds."""

    def __init__(self, not_ready_s: float) -> None:
        self._not_ready_s = not_ready_s
        self._begun: float | None = None

    def signalled(self, number: signal.Signals, now: float, *, is_serving: bool) -> Wish:
        if self._begun is not None:
            return Wish.KILL if now - self._begun >= SECOND_SIGNAL_S else Wish.NOTHING
        self._begun = now
        is_announced = is_serving and self._not_ready_s > 0 and number is signal.SIGTERM
        return Wish.ANNOUNCE if is_announced else Wish.DRAIN

    def begun_without(self, now: float) -> None:
        """A stop that no signal asked for: the first to come is the second word."""
        if self._begun is None:
            self._begun = now
