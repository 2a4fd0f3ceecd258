"""How loaded the cluster is, as admission asks, and when its queue will have been worked off. Pure."""

from collections.abc import Collection, Iterator, Mapping

from ostraka_gateway.admission import Load
from ostraka_gateway.roster import Roster
from ostraka_gateway.speeds import full_call_s, measured_speeds, tokens_per_s
from ostraka_gateway.worker import Worker

REPLACEMENT_S = 10.0
"""How long after a worker's end its replacement is still expected: start, load, warm-up."""
RETRY_UNMEASURED_S = 1.0
LEAST_RETRY_LATE_S = 0.5
"""More than who is refused at once is told at least: this one was let in, and late for a reason that no queue shows."""


def measure_load(roster: Roster, lane_tokens: Mapping[int, int], tokens: int, now: float) -> Load:
    """As it is for a request of so many tokens. `lane_tokens`: what waits, by its size. Shorter ones pass longer ones,
    and share the workers' time with them."""
    ready = roster.ready_workers()
    size = min((worker.credit.size_of(tokens) for worker in ready), default=0)
    return _load_of(roster, ready, lane_tokens, size, now)


def loads_by_size(roster: Roster, lane_tokens: Mapping[int, int], now: float) -> Iterator[Load]:
    """As it is for each size that a request may have, the smallest first; but for those like the size before them."""
    ready = roster.ready_workers()
    waiting = {lane for lane, tokens in lane_tokens.items() if lane > 0 and tokens}
    for size in sorted({0}.union(waiting, *(worker.credit.long_sizes for worker in ready))):
        yield _load_of(roster, ready, lane_tokens, size, now)


def _load_of(roster: Roster, ready: Collection[Worker], lane_tokens: Mapping[int, int], size: int, now: float) -> Load:
    queued_tokens = sum(lane_tokens.values())
    longer = {lane: waiting for lane, waiting in lane_tokens.items() if lane > size and waiting}
    turns = 1 + len(longer.keys() | {held for worker in ready for held in worker.credit.long_sizes if held > size})
    has_idle = not queued_tokens and not all(worker.held for worker in ready)
    held_tokens = 0 if has_idle else sum(worker.credit.claimed_up_to(size) for worker in ready)
    expects_worker = roster.expects_worker(now, REPLACEMENT_S)
    total, fastest = measured_speeds(ready, roster.pace.share, now, are_busy=queued_tokens + held_tokens > 0)
    call_s = full_call_s(ready) if queued_tokens else 0.0
    passed, caution = sum(longer.values()), roster.caution.factor
    return Load(queued_tokens, held_tokens, total, fastest, expects_worker, call_s, passed, turns, caution)


def retry_s(roster: Roster, queued_tokens: int) -> float:
    """For whom the deadline has passed: what waits now is answered by then."""
    rate = tokens_per_s(roster.ready_workers())
    return max(LEAST_RETRY_LATE_S, queued_tokens / rate) if rate else RETRY_UNMEASURED_S
