"""Which worker has grown so large that a new one is to take its place. Pure."""

from collections.abc import Mapping

AGAIN_S = 60.0
"""Least time between two replacements of the same worker: where a fresh one is already over the limit, it costs a fork a
minute, and a warning says why."""


class Recycling:
    """`limit_bytes` of resident memory; 0: there is none."""

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self._last: dict[str, float] = {}

    def choose(self, now: float, rss_bytes: Mapping[str, int]) -> str | None:
        """The largest of those over the limit, if one may be replaced; it then counts as replaced."""
        if not self._limit_bytes:
            return None
        over = [
            name
            for name, size in rss_bytes.items()
            if size > self._limit_bytes and now - self._last.get(name, -AGAIN_S) >= AGAIN_S
        ]
        if not over:
            return None
        chosen = max(over, key=lambda name: rss_bytes[name])
        self._last[chosen] = now
        return chosen

    def was_recent(self, now: float, name: str) -> bool:
        """Whether a worker over the limit follows one that was, so soon that the limit itself must be too low."""
        return now - self._last.get(name, float("-inf")) < 2 * AGAIN_S
