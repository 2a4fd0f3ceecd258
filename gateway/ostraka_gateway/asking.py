"""Which bodies are being answered, by their hashes: while all else is refused unread, who sends the same may join."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

MOST_BYTES = 1 << 16
"""Of a body that is hashed, in 40 us. None larger is ever told from others."""
UNKNOWN = 0


class Asking:
    """A hash that two bodies share, one in 2^64, has the second one looked at, and no more."""

    def __init__(self) -> None:
        self._counts: Counter[int] = Counter()

    def holds(self, body: bytes) -> bool:
        return hash_of(body) in self._counts

    @contextmanager
    def hold(self, body_hash: int) -> Iterator[None]:
        if body_hash == UNKNOWN:
            yield
            return
        self._counts[body_hash] += 1
        try:
            yield
        finally:
            self._counts[body_hash] -= 1
            if not self._counts[body_hash]:
                del self._counts[body_hash]


def hash_of(body: bytes) -> int:
    return hash(body) if len(body) <= MOST_BYTES else UNKNOWN
