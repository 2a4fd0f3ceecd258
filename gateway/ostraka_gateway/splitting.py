"""Whether a request of many prompts is read by several workers at once, and who gets which prompts. Pure.

The price is the prefix, which each of them reads. So it is split only while that pays: where a further worker brings
the end nearer by at least half of what it reads a second time, or where the deadline cannot be kept otherwise.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

from ostraka_shared.reading_rules import LONG_PAST_TOKENS

LEAST_SAVED_S = 0.02
"""Less is within the error of a prediction."""
WORTH = 0.5
"""Of the time to read the prefix once more: others could have had it."""


@dataclass(frozen=True, slots=True)
class Reader:
    """A worker with room. `wait_s`: until it is done with what it holds."""

    wait_s: float
    tokens_per_s: float


@dataclass(frozen=True, slots=True)
class Reading:
    """What is to be read, in tokens of a call without a past: the prefix by each reader, the rest by one of them."""

    prefix: float
    rest: float

    @classmethod
    def of(cls, prefix_tokens: int, rest_tokens: int) -> "Reading":
        long = LONG_PAST_TOKENS
        beyond = 2 / 3 * (prefix_tokens * math.sqrt(prefix_tokens / long) - long) if prefix_tokens > long else 0.0
        growth = math.sqrt(max(1.0, prefix_tokens / long))
        return cls(min(prefix_tokens, long) + beyond, rest_tokens * growth)


def finish_s(reading: Reading, readers: Sequence[Reader]) -> float:
    """When all of them are done, if each gets as much as makes them end together."""
    speed = sum(reader.tokens_per_s for reader in readers)
    before = sum(reader.wait_s * reader.tokens_per_s + reading.prefix for reader in readers)
    return (reading.rest + before) / speed


def plan_shares(reading: Reading, readers: Sequence[Reader], deadline_s: float, *, is_quiet: bool) -> list[float]:
    """Of the first readers, those with the least to wait for first, each one's share of the rest; together 1.

    `is_quiet`: nobody else waits, so that reading the prefix again costs nobody anything.
    """
    if readers[0].tokens_per_s <= 0:
        return [1.0]
    count, ends_s = 1, finish_s(reading, readers[:1])
    for more in range(2, len(readers) + 1):
        reader = readers[more - 1]
        if reader.tokens_per_s <= 0:
            break
        saved_s = ends_s - (with_it_s := finish_s(reading, readers[:more]))
        pays = is_quiet and saved_s >= max(LEAST_SAVED_S, WORTH * reading.prefix / reader.tokens_per_s)
        if not pays and not (saved_s > 0 and ends_s > deadline_s):
            break
        count, ends_s = more, with_it_s
    works = [(ends_s - reader.wait_s) * reader.tokens_per_s - reading.prefix for reader in readers[:count]]
    return [max(0.0, work) / sum(max(0.0, each) for each in works) for work in works] if count > 1 else [1.0]


def cut(added: Sequence[int], shares: Sequence[float]) -> list[list[int]]:
    """Places 0..n-1 as runs of neighbours, each about its share of all tokens; empty ones are left out."""
    total = sum(added)
    borders = [total * share for share in accumulate(shares)]
    groups: list[list[int]] = [[] for _ in shares]
    group, before = 0, 0
    for place, tokens in enumerate(added):
        while group < len(shares) - 1 and before + tokens / 2 > borders[group]:
            group += 1
        groups[group].append(place)
        before += tokens
    return [each for each in groups if each]
