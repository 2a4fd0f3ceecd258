"""Whose turn it is among those that share one thing: start-time fair queueing. Pure.

Each that wants some has the same share of it, whatever it takes at a time: whose use is least is next. What it did not
want in time is not owed to it: who comes back starts where the one served last did, and so is next, or soon.

P. Goyal, H. Vin, H. Cheng: Start-time Fair Queuing, SIGCOMM 1996; the weights are all 1.
"""

from collections.abc import Iterable


class Turns:
    """The sharers are numbers; of those whose turn it is equally, the smallest is first."""

    def __init__(self) -> None:
        self._used: dict[int, float] = {}
        self._clock = 0.0

    def join(self, who: int) -> None:
        """It wants some from now on, and did not before."""
        self._used[who] = max(self._clock, self._used.get(who, 0.0))

    def next(self, wanting: Iterable[int]) -> int | None:
        """None where nobody wants any."""
        return min(wanting, key=lambda who: (self._used[who], who), default=None)

    def use(self, who: int, amount: float) -> None:
        self._clock = self._used[who]
        self._used[who] += amount
