"""Which worker has grown so large that a new one is to take its place. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass

AGAIN_S = 60.0
"""Least time between two replacements of the same worker: where a fresh one is already over the limit, it costs a fork
a minute, and a warning says why."""


@dataclass(frozen=True, slots=True)
class Due:
    """`is_again`: so soon after the last time that the limit must be too low."""

    worker: str
    is_again: bool


class Recycling:
    """`limit_bytes` of resident memory; 0: there is none."""

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self._last: dict[str, float] = {}

    @property
    def has_limit(self) -> bool:
        """Otherwise nobody needs to know how large anyone is."""
        return bool(self._limit_bytes)

    def choose(self, now: float, rss_bytes: Mapping[str, int]) -> Due | None:
        """The largest of those over the limit, if one may be replaced; it then counts as replaced."""
        if not self.has_limit:
            return None
        over = [
            name
            for name, size in rss_bytes.items()
            if size > self._limit_bytes and now - self._last.get(name, -AGAIN_S) >= AGAIN_S
        ]
        if not over:
            return None
        chosen = max(over, key=lambda name: rss_bytes[name])
        is_again = now - self._last.get(chosen, float("-inf")) < 2 * AGAIN_S
        self._last[chosen] = now
        return Due(chosen, is_again)
