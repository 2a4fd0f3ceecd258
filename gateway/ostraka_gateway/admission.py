"""Whether a request may wait for a worker, or is better refused at once. Pure.

Since the earliest deadline goes first, a request that is let in with all that waits before its own deadline makes
nobody late: whom it overtakes has a later deadline, and all of that work is done by the earlier one.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass

from ostraka_gateway.caution import LEAST
from ostraka_shared.errors import DeadlineExceeded, NoWorkerReady, Overloaded

RETRY_WHEN_STARTING_S = 1.0
LEAST_RETRY_S = 0.1
MAX_RETRY_S = 20.0
"""The official SDK gives up at once on a wait beyond its whole budget of 30 s."""
HOPELESS = 2.0
"""How much too long a request must be, at best, to be refused by an idle cluster: a speed may have been measured while
others used the machine, and refused work measures nothing."""


@dataclass(frozen=True, slots=True)
class Load:
    """`queued_tokens` wait here; `held_tokens` are before it in the workers, 0 where one is idle. `tokens_per_s` of all
    that are ready, and of the fastest one: measured not long ago, or 0. `call_s`: of the call it will share, if others
    wait. `passed_tokens`: of the queued ones, those it does not wait for; with whom it shares the workers' time, each
    with as many `turns` of it as there are sizes. `caution`: times the predicted wait."""

    queued_tokens: int
    held_tokens: int
    tokens_per_s: float
    fastest_tokens_per_s: float
    expects_worker: bool
    call_s: float = 0.0
    passed_tokens: int = 0
    turns: int = 1
    caution: float = LEAST

    @property
    def wait_s(self) -> float:
        """Until a worker begins with it; 0 where nobody knows."""
        before = self.queued_tokens - self.passed_tokens + self.held_tokens
        return before * self.turns / self.tokens_per_s if self.tokens_per_s else 0.0


@dataclass(frozen=True, slots=True)
class Demand:
    """`tokens` to be read; `least_tokens` of them if its state is kept. `can_split`: several workers may share it."""

    tokens: int
    least_tokens: int
    deadline_s: float
    can_split: bool = False

    def best_s(self, load: Load) -> float:
        """Under the best of circumstances."""
        speed = load.tokens_per_s if self.can_split else load.fastest_tokens_per_s
        return self.least_tokens / speed if speed else 0.0

    def is_to_wait(self, load: Load) -> bool:
        """Longer than it takes at best: whether that comes in time shows how good the prediction was."""
        return load.wait_s > self.best_s(load)


def refusal_of_all(deadline_s: float, loads: Iterable[Load], queue_limit_tokens: int) -> Overloaded | None:
    """What any request with that deadline is to be told, whatever it asks: none is let in. None where one may be.
    `loads`: as it is for each size that a request may have."""
    least, soonest = Demand(tokens=1, least_tokens=0, deadline_s=deadline_s), None
    for load in loads:
        refusal = _overload(least, load, queue_limit_tokens) if load.expects_worker else None
        if refusal is None:
            return None
        soonest = min(soonest or refusal, refusal, key=_wait_of)
    return soonest


def admit(demand: Demand, load: Load, queue_limit_tokens: int) -> None:
    """Raises NoWorkerReady, Overloaded, both with the time after which the same request is likely to be let in; or
    DeadlineExceeded where no time would help."""
    if not load.expects_worker:
        raise NoWorkerReady("no worker is ready: the cluster is starting or has lost them all", RETRY_WHEN_STARTING_S)
    best_s, deadline_s = demand.best_s(load), demand.deadline_s
    if best_s > HOPELESS * deadline_s:
        raise DeadlineExceeded(
            f"reading this takes {_told(best_s)} at best and the deadline is {_told(deadline_s)}: "
            "ask fewer questions at a time, or allow more time with x-deadline-ms"
        )
    if (refusal := _overload(demand, load, queue_limit_tokens)) is not None:
        raise refusal


def _overload(demand: Demand, load: Load, queue_limit_tokens: int) -> Overloaded | None:
    """Who asks for less, with the same deadline and load, is never refused where more is let in."""
    wait_s, deadline_s = load.wait_s, demand.deadline_s
    reading_s = min(max(demand.best_s(load), load.call_s), deadline_s)
    if wait_s and (late_s := wait_s * load.caution + reading_s - deadline_s) > 0:
        return Overloaded(
            f"{_told(wait_s)} of work are ahead: an answer may take {_told(late_s + deadline_s)}, "
            f"and the deadline is {_told(deadline_s)}",
            _retry_s(late_s),
        )
    if load.queued_tokens and (over := load.queued_tokens + demand.tokens - queue_limit_tokens) > 0:
        over_s = min(over, load.queued_tokens) / load.tokens_per_s if load.tokens_per_s else 0.0
        return Overloaded(f"{load.queued_tokens} tokens are waiting, of {queue_limit_tokens} at most", _retry_s(over_s))
    return None


def _told(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds >= 1 else f"{math.ceil(seconds * 1000)} ms"


def _wait_of(refusal: Overloaded) -> float:
    return refusal.retry_after_s or 0.0


def _retry_s(late_s: float) -> float:
    """By then the queue is that much shorter."""
    return min(max(late_s, LEAST_RETRY_S), MAX_RETRY_S)
