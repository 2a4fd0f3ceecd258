"""How fast the cluster works off what waits, as a share of the speed of its calls. Pure.

Between two calls a worker packs, sends and listens: none of that is in what a call takes. Where a queue's length is to
tell a time, it counts. It shows only while work waits throughout: otherwise a worker may have lacked work.
"""

import math
from dataclasses import dataclass

LOOK_S = 0.5
STALL_S = 5.0
"""Nothing was heard for so long: someone stood still, which says nothing of the pace."""
MEMORY_S = 5.0
LEAST_SEEN_S = 1.0
LEAST_SHARE = 0.25
"""Less than that is not a pace but a fault, for which there are other means; and it may be remembered for long."""


@dataclass(slots=True)
class Pace:
    """`share` is 1 until a second of waiting work was seen. Instants and seconds are of the gateway's clock.

    `forgotten_at`: those who were let in before it may be late for no fault of the prediction.
    """

    share: float = 1.0
    forgotten_at: float = -math.inf
    _since: float | None = None
    _tokens: int = 0
    _seen_s: float = 0.0
    _read: float = 0.0
    _expected: float = 0.0

    def count(self, tokens: int) -> None:
        """A call over so many has ended."""
        self._tokens += tokens

    def watch(self, now: float, tokens_per_s: float, *, is_waiting: bool) -> None:
        """To be told often, and whenever the queue is empty. `tokens_per_s`: the speed of the calls of all workers."""
        if not is_waiting:
            self._since = None
        elif self._since is None:
            self._since, self._tokens = now, 0
        elif (seconds := now - self._since) >= LOOK_S:
            if seconds < STALL_S:
                self._learn(seconds, tokens_per_s)
            self._since, self._tokens = now, 0

    def forget(self, now: float) -> None:
        """A worker stood still or is lost: what was seen until somebody noticed was no pace, and nobody should be
        refused for it once it is over."""
        self.share, self._since, self.forgotten_at = 1.0, None, now
        self._seen_s = self._read = self._expected = 0.0

    def _learn(self, seconds: float, tokens_per_s: float) -> None:
        kept = math.exp(-seconds / MEMORY_S)
        self._seen_s = kept * self._seen_s + seconds
        self._read = kept * self._read + self._tokens
        self._expected = kept * self._expected + seconds * tokens_per_s
        if self._seen_s >= LEAST_SEEN_S and self._expected:
            self.share = min(1.0, max(LEAST_SHARE, self._read / self._expected))
