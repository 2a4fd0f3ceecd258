"""Requests that wait in one worker, each gateway's first come, first served, and the gateways by turns. Pure.

Each gateway gets the same share of the tokens read, however many requests it sends and however large they are.
"""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

from ostraka_shared.messages import Work
from ostraka_worker.turns import Turns


@dataclass(frozen=True, slots=True)
class Waiting:
    """A request this worker took. `deadline` and `received` are instants of its own clock; `gateway` is the number of
    the one that asks: two may use the same request id."""

    work: Work
    received: float
    deadline: float
    tokens: int
    gateway: int = 0

    @classmethod
    def take(cls, work: Work, now: float, gateway: int = 0) -> "Waiting":
        return cls(work, now, now + work.deadline_ms / 1000, work.tokens, gateway)

    def is_attempt(self, gateway: int, request_id: str, attempt: int) -> bool:
        return (self.gateway, self.work.request_id, self.work.attempt) == (gateway, request_id, attempt)


class FairLine:
    def __init__(self) -> None:
        self._lines: dict[int, deque[Waiting]] = {}
        self._turns = Turns()

    def __len__(self) -> int:
        return sum(map(len, self._lines.values()))

    def __iter__(self) -> Iterator[Waiting]:
        for line in self._lines.values():
            yield from line

    def append(self, waiting: Waiting) -> None:
        line = self._lines.setdefault(waiting.gateway, deque())
        if not line:
            self._turns.join(waiting.gateway)
        line.append(waiting)

    @property
    def head(self) -> Waiting | None:
        """Who is next."""
        gateway = self._turns.next(gateway for gateway, line in self._lines.items() if line)
        return None if gateway is None else self._lines[gateway][0]

    def popleft(self) -> Waiting:
        """The head. Raises IndexError where nobody waits."""
        if (head := self.head) is None:
            raise IndexError("nobody waits")
        self._turns.use(head.gateway, head.tokens)
        return self._lines[head.gateway].popleft()

    def remove(self, waiting: Waiting) -> None:
        self._lines[waiting.gateway].remove(waiting)

    def clear(self, gateway: int) -> None:
        self._lines.pop(gateway, None)
