"""Whether a gateway that says nothing hangs, or only waits for a core. Pure: time comes in as `now`, in seconds.

Silence is what its reports leave, less the time in which it wanted a core and had none: that ends by itself, and
whoever came after it would have to wait for a core too.
"""

from ostraka_shared.core_times import CoreTimes

SILENT_S = 2.5
"""What an event loop of ours does in one go takes a quarter of a second at most. The clients of one that hangs see
their connections closed then, and the default deadline leaves them time for another try."""
STARVED_S = 15.0
"""The longest silence, whatever excuses it: nobody waits for its answers any more."""
STEP_S = 0.5
"""What one look counts at most: who looks may have stood still itself, and those it looks at with it."""


class Stillness:
    """Of one gateway, from its start."""

    def __init__(self, now: float) -> None:
        self._looked = now
        self._times: CoreTimes | None = None
        self.unheard_s = 0.0
        self.silent_s = 0.0

    def heard(self, now: float) -> None:
        self._looked = now
        self._times = None
        self.unheard_s = self.silent_s = 0.0

    def look(self, now: float, times: CoreTimes | None = None) -> bool:
        """Whether it hangs. `times`: None where the system does not say; nothing is excused then."""
        passed_s = max(0.0, now - self._looked)
        step_s = min(passed_s, STEP_S)
        self._looked = now
        self.unheard_s += step_s
        starved_s = times.starved_s(self._times, passed_s) if times and self._times else 0.0
        self.silent_s += max(0.0, step_s - starved_s)
        if self._times is None and times is not None and times.wants_core:
            self.silent_s = 0.0  # as it is found, so it may have been until now
        self._times = times
        return self.silent_s > SILENT_S or self.unheard_s > STARVED_S
