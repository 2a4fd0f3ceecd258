"""The gateway's queue: what waits for a worker, the most urgent first. Pure.

Urgent is what is due first: its deadline, or `PATIENCE_S` after it came where that is earlier. So nobody waits behind
those that come more than that later, however short their deadlines, and with equal deadlines it is first come, first
served. There are lanes, so that one head that must wait for something of its own does not hold up the others.
"""

import heapq
import itertools
from collections import Counter
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar

PATIENCE_S = 10.0
RETURNED_S = 1e9
"""What a lost worker held is due before all else, in its old order."""
LEAST_MARKED = 1000
"""A line is not swept for fewer."""


class Waits(Protocol):
    """The lane and the tickets are the line's own: the first it ever gave, and the present one, 0 while it does not
    wait."""

    tokens: int
    lane: int
    first_ticket: int
    ticket: int


Waiter = TypeVar("Waiter", bound=Waits)


def due(admitted: float, deadline: float) -> float:
    return min(deadline, admitted + PATIENCE_S)


@dataclass(slots=True)
class WaitingLine(Generic[Waiter]):
    """Adding and taking cost O(log n). Who leaves out of turn is only marked, and skipped when its turn comes, or swept
    out where more are marked than wait: while there is nobody to send to, the first may wait for minutes, and all that
    leave behind it would be kept as long."""

    tokens: int = 0
    count: int = 0
    lane_tokens: Counter[int] = field(default_factory=Counter)
    _lanes: dict[int, list[tuple[float, int, int, Waiter]]] = field(default_factory=dict)
    _tickets: "itertools.count[int]" = field(default_factory=lambda: itertools.count(1))

    def push(self, waiter: Waiter, due_at: float, lane: int) -> None:
        """Once more: to another place."""
        self.remove(waiter)
        waiter.lane, waiter.ticket = lane, next(self._tickets)
        waiter.first_ticket = waiter.first_ticket or waiter.ticket
        heapq.heappush(self._lanes.setdefault(lane, []), (due_at, waiter.first_ticket, waiter.ticket, waiter))
        self.tokens += waiter.tokens
        self.lane_tokens[lane] += waiter.tokens
        self.count += 1
        if sum(map(len, self._lanes.values())) > 2 * self.count + LEAST_MARKED:
            self._sweep()

    def remove(self, waiter: Waiter) -> None:
        if waiter.ticket:
            waiter.ticket = 0
            self.tokens -= waiter.tokens
            self.lane_tokens[waiter.lane] -= waiter.tokens
            self.count -= 1

    def heads(self) -> list[Waiter]:
        """The first of each lane, the most urgent first."""
        found = []
        for lane in self._lanes.values():
            while lane and lane[0][-1].ticket != lane[0][-2]:
                heapq.heappop(lane)
            if lane:
                found.append(lane[0])
        return [waiter for *_, waiter in sorted(found)]

    def _sweep(self) -> None:
        for lane in self._lanes.values():
            lane[:] = [place for place in lane if place[-1].ticket == place[-2]]
            heapq.heapify(lane)
