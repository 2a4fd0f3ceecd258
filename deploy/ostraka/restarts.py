"""When a child that died is started again, and when that is pointless. Pure."""

from collections.abc import Callable
from dataclasses import dataclass

FIRST_DELAY_S = 0.1
MAX_DELAY_S = 1.0
"""A fork that dies each second costs a tenth of a core. With 10 s, workers that something killed every few seconds were
away together for longer than the default deadline, and what was let in meanwhile was late: 677 of 52,660 in a soak."""
STABLE_S = 10.0
"""Up for so long, a child's next death is a new story."""
CRASH_LIMIT_AT_START = 2
"""Before the cluster was ever ready, a death is most likely a wrong setting or model: say so soon. Once it has served,
a child is never given up: what kills it may be a request, and the others must not pay for it with their server."""


@dataclass(slots=True)
class RestartPolicy:
    """One child's history. `jitter()` is in 0..1: it keeps children that died together from returning together."""

    jitter: Callable[[], float]
    most_delay_s: float = MAX_DELAY_S
    quick_deaths: int = 0

    def count_death(self, uptime_s: float) -> None:
        """Of one that is followed at once, whatever its history."""
        self.quick_deaths = 1 if uptime_s >= STABLE_S else self.quick_deaths + 1

    def next_delay_s(self, uptime_s: float, *, has_been_ready: bool) -> float | None:
        """How long to wait before the next start, at first not at all; None to give the child up."""
        self.count_death(uptime_s if has_been_ready else 0.0)  # a model may take long to load before it cannot
        if not has_been_ready and self.quick_deaths >= CRASH_LIMIT_AT_START:
            return None
        if self.quick_deaths == 1:
            return 0.0  # one death is no loop, and a forked worker is back sooner than any delay ends
        delay_s = min(FIRST_DELAY_S * 2.0 ** min(self.quick_deaths - 2, 16), self.most_delay_s)
        return delay_s * (0.5 + self.jitter() / 2)
