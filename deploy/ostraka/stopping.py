"""How the server stops: what a signal to stop means, and what comes after what. Pure.

    UP ──SIGTERM──► NOT_READY: /readyz says so, everything is answered ──not_ready_s──► GATEWAYS ──gone──► WORKERS
     └──SIGINT, SIGHUP: a terminal's, behind which nobody looks at readiness ──────────────┘
    WORKERS ──WORKERS_LEAVE_S──► those that have not left are killed; nobody waits for them
    any signal clearly later than the first, or the grace period's end: what is left is killed

The gateways drain first: they take nothing new and wait for their answers, which the workers still give.
"""

import signal
from enum import Enum, auto

SECOND_SIGNAL_S = 1.0
"""Supervisors and terminals signal a group and its leader, or pass on what the leader got already: within milliseconds.
Who is told to wait and has had enough has taken longer to see it."""
WORKERS_LEAVE_S = 2.5
"""For the workers to leave once the gateways have, measured as 0.3 to 0.9 s on busy cores: each waits a little for work
on its way; half a second more where a gateway stands still, and does not take its last words. Nobody waits for what
they do then, so one that stands still is killed."""
NEVER = float("inf")


class Phase(Enum):
    UP = auto()
    NOT_READY = auto()
    GATEWAYS = auto()
    WORKERS = auto()


class Wish(Enum):
    """What is to be done. `OVERDUE`: as `KILL`, for want of time. `KILL_WORKERS`: they hold nothing any more."""

    ANNOUNCE = auto()
    DRAIN_GATEWAYS = auto()
    DRAIN_WORKERS = auto()
    KILL_WORKERS = auto()
    OVERDUE = auto()
    KILL = auto()


class Stopping:
    """`now` is any monotonic clock's, in seconds, and so is `due`: when `turn` has something to do at the latest."""

    def __init__(self, grace_s: float, not_ready_s: float) -> None:
        self._grace_s = grace_s
        self._not_ready_s = not_ready_s
        self._begun: float | None = None
        self._grace_ends = NEVER
        self.phase = Phase.UP
        self.due = NEVER

    @property
    def is_up(self) -> bool:
        """Everything is answered, and what ends is started again."""
        return self.phase in (Phase.UP, Phase.NOT_READY)

    def signalled(self, number: signal.Signals, now: float, *, is_serving: bool) -> Wish | None:
        if self._begun is not None:
            return self._kill(Wish.KILL) if now - self._begun >= SECOND_SIGNAL_S else None
        if not (is_serving and self._not_ready_s > 0 and number is signal.SIGTERM):
            return self.drain(now)
        self._begun, self.phase, self.due = now, Phase.NOT_READY, now + self._not_ready_s
        return Wish.ANNOUNCE

    def drain(self, now: float) -> Wish:
        """Also where no signal asked for it: the first to come is then the second word."""
        self._begun = now if self._begun is None else self._begun
        self.phase, self.due = Phase.GATEWAYS, now + self._grace_s
        return Wish.DRAIN_GATEWAYS

    def turn(self, now: float, *, has_gateway: bool) -> Wish | None:
        """`has_gateway`: one runs still. To be called until nothing is to be done."""
        if self.phase is Phase.GATEWAYS and not has_gateway:
            self.phase, self._grace_ends, self.due = Phase.WORKERS, self.due, min(self.due, now + WORKERS_LEAVE_S)
            return Wish.DRAIN_WORKERS
        if now < self.due:
            return None
        if self.phase is Phase.WORKERS and now < self._grace_ends:
            self.due = self._grace_ends
            return Wish.KILL_WORKERS
        return self.drain(now) if self.phase is Phase.NOT_READY else self._kill(Wish.OVERDUE)

    def _kill(self, wish: Wish) -> Wish:
        self.phase, self.due = Phase.WORKERS, NEVER
        return wish
