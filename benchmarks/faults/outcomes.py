"""What became of each request, and what that says of a fault. Pure: instants come in, in seconds of one clock.

before ──injection──► during ──all workers ready again, fault over──► after
"""

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise, takewhile


class Kind(StrEnum):
    """RIGHT: the bytes that were answered before any fault. FAILED: an error that names no time to try again."""

    RIGHT = "right"
    WRONG = "wrong"
    FAILED = "failed"
    LOST = "lost"


LEAST_DURING_S = 1.0
"""A worker is replaced so soon that hardly any request would come in between."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """`due`: when it was to be sent, whether or not the client was late. `retries` are the client's own, after a closed
    connection or a refusal. `answer_id`: the server's name for the answer; `detail`: what was answered instead."""

    due: float
    ended: float
    kind: Kind
    retries: int = 0
    answer_id: str = ""
    detail: str = ""

    @property
    def latency_s(self) -> float:
        return self.ended - self.due


@dataclass(frozen=True, slots=True)
class Sample:
    """How many workers were ready; 0 where the server did not say."""

    at: float
    ready: int


@dataclass(frozen=True, slots=True)
class Window:
    """`begun` is the injection; `injected` when the fault itself was over. `redispatched` as the server counts it."""

    name: str
    begun: float
    injected: float
    redispatched: int = 0
    note: str = ""


@dataclass(frozen=True, slots=True)
class Row:
    """Times in seconds. `full_after_s` is the longest time that not all workers were ready: None if they still are not,
    NaN if they are not to be."""

    fault: str
    requests: int
    retried: int
    redispatched: int
    lost: int
    failed: int
    wrong: int
    duplicates: int
    p99_before_s: float
    p99_during_s: float
    p99_after_s: float
    full_after_s: float | None
    note: str = ""

    @property
    def is_kept(self) -> bool:
        """The promise: each request is answered once, completely and as ever."""
        return not (self.lost or self.failed or self.wrong or self.duplicates)


def percentile(values: Iterable[float], share: float) -> float:
    """The least value that `share` of all do not exceed; NaN of none."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)] if ordered else math.nan


def count_duplicates(outcomes: Iterable[Outcome]) -> int:
    """Answers that were delivered more than once."""
    seen = Counter(each.answer_id for each in outcomes if each.answer_id)
    return sum(count - 1 for count in seen.values())


def longest_shortage(samples: Sequence[Sample], wanted: int) -> float | None:
    """For how long fewer workers than `wanted` were ready, at the longest, from one sample that had them all to the
    next. 0 where each had them, None where the last had not."""
    full = [sample.at for sample in samples if sample.ready >= wanted]
    if not samples or samples[-1].ready < wanted:
        return None
    short = {sample.at for sample in samples if sample.ready < wanted}
    begins = [samples[0].at, *full]
    return max((end - begin for begin, end in pairwise(begins) if any(begin <= at < end for at in short)), default=0.0)


def full_since(samples: Sequence[Sample], wanted: int) -> float | None:
    """The first of the samples at the end that all have `wanted` workers."""
    full = list(takewhile(lambda sample: sample.ready >= wanted, reversed(samples)))
    return full[-1].at if full else None


def summarize(window: Window, outcomes: Sequence[Outcome], samples: Sequence[Sample], wanted: int) -> Row:
    """`outcomes` and `samples` from some time before the injection to some time after all was well again."""
    seen = [sample for sample in samples if sample.at >= window.begun]
    since = full_since(seen, wanted)
    ends = max(window.injected, window.begun + LEAST_DURING_S, math.inf if since is None else since)
    kinds = Counter(each.kind for each in outcomes)
    return Row(
        fault=window.name,
        requests=len(outcomes),
        retried=sum(each.retries > 0 for each in outcomes),
        redispatched=window.redispatched,
        lost=kinds[Kind.LOST],
        failed=kinds[Kind.FAILED],
        wrong=kinds[Kind.WRONG],
        duplicates=count_duplicates(outcomes),
        p99_before_s=_p99(each for each in outcomes if each.due < window.begun),
        p99_during_s=_p99(each for each in outcomes if window.begun <= each.due < ends),
        p99_after_s=_p99(each for each in outcomes if each.due >= ends),
        full_after_s=longest_shortage(seen, wanted),
        note=window.note,
    )


def _p99(outcomes: Iterable[Outcome]) -> float:
    return percentile((each.latency_s for each in outcomes), 0.99)
