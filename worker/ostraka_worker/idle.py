"""When a worker without work makes a short call, so that the next request finds the model in the CPU's caches. Pure."""

import math

LONGEST_S = 0.25
"""A request may have to wait for one such call: where it takes longer, twice in a row, there are no more."""


class IdleCalls:
    """One each `each_s` without work; 0 for never. Times are of any monotonic clock."""

    def __init__(self, each_s: float, now: float) -> None:
        self._each_s = each_s or math.inf
        self._due = now + self._each_s
        self._slow_in_a_row = 0

    def worked(self, now: float) -> None:
        self._due = now + self._each_s

    def is_due(self, now: float) -> bool:
        return now >= self._due

    def called(self, begun: float, now: float) -> None:
        self._slow_in_a_row = self._slow_in_a_row + 1 if now - begun > LONGEST_S else 0
        if self._slow_in_a_row > 1:
            self._each_s = math.inf
        self._due = now + self._each_s
