"""The prefix cache: memories of states, found by their tokens, the least recently used dropped first.

Pure. It never looks into a memory, and forgets it whole; what is in use lives on with who uses it.
"""

from dataclasses import asdict, dataclass

from ostraka_shared.messages import TOKEN_BYTES
from ostraka_shared.reading_rules import LEAST_PREFIX_TOKENS
from ostraka_worker.engine import Memory
from ostraka_worker.tree import common_tokens

_KEY_BYTES = LEAST_PREFIX_TOKENS * TOKEN_BYTES


@dataclass(slots=True)
class SnapshotCounts:
    kept: int = 0
    tokens: int = 0
    hits: int = 0
    misses: int = 0
    reused_tokens: int = 0
    bytes: int = 0


class Snapshots:
    """At most `most` of them, and `most_tokens` together; either 0 turns the cache off."""

    def __init__(self, most: int, most_tokens: int) -> None:
        self._most = most if most_tokens else 0
        self._most_tokens = most_tokens
        self._memories: dict[bytes, Memory] = {}
        """By their tokens, the least recently used first."""
        self._alike: dict[bytes, set[bytes]] = {}
        """Those that begin with the same LEAST_PREFIX_TOKENS tokens."""
        self.counts = SnapshotCounts()

    @property
    def is_on(self) -> bool:
        return self._most > 0

    def report(self) -> dict[str, int]:
        """The counters, as a BEAT names them."""
        counts = asdict(self.counts) | {"max": self._most, "max_tokens": self._most_tokens}
        return {f"snapshots_{name}": value for name, value in counts.items()}

    def find(self, prefix: bytes) -> tuple[Memory | None, int]:
        """The memory that shares most tokens with the prefix, at least LEAST_PREFIX_TOKENS, and how many."""
        if not self.is_on or not prefix:
            return None, 0
        alike = self._alike.get(prefix[:_KEY_BYTES], set()) if len(prefix) >= _KEY_BYTES else set[bytes]()
        best, tokens = max(((each, common_tokens(prefix, each)) for each in alike), key=_likeness, default=(b"", 0))
        if not tokens:
            self.counts.misses += 1
            return None, 0
        self.counts.hits += 1
        self.counts.reused_tokens += tokens
        memory = self._memories[best] = self._memories.pop(best)
        return memory, tokens

    def wants(self, state_tokens: int) -> bool:
        return self.is_on and LEAST_PREFIX_TOKENS <= state_tokens <= self._most_tokens

    def keep(self, state: bytes, memory: Memory) -> None:
        """A state that `wants` agreed to, and a memory that begins with it."""
        if state in self._memories:
            self._memories[state] = self._memories.pop(state)
            return
        tokens = len(state) // TOKEN_BYTES
        while len(self._memories) >= self._most or self.counts.tokens + tokens > self._most_tokens:
            self._drop(next(iter(self._memories)))
        self._memories[state] = memory
        self._alike.setdefault(state[:_KEY_BYTES], set()).add(state)
        self._count(1, tokens, memory)

    def _drop(self, state: bytes) -> None:
        memory = self._memories.pop(state)
        alike = self._alike[state[:_KEY_BYTES]]
        alike.remove(state)
        if not alike:
            del self._alike[state[:_KEY_BYTES]]
        self._count(-1, -(len(state) // TOKEN_BYTES), memory)

    def _count(self, one: int, tokens: int, memory: Memory) -> None:
        self.counts.kept += one
        self.counts.tokens += tokens
        self.counts.bytes += one * memory.nbytes


def _likeness(found: tuple[bytes, int]) -> tuple[int, int]:
    """Of equals the shorter: what lies beyond is of no use to this prefix."""
    return found[1], -len(found[0])
