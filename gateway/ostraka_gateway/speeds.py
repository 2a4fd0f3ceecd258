"""How fast those who are ready answer, as far as calls have shown. Pure."""

from collections.abc import Collection

from ostraka_gateway.worker import Worker

FRESH_S = 30.0
"""How long a measured speed is a reason to refuse a request of idle workers: refused work measures nothing. Of busy
ones it is a reason however old it is: what they read now measures it anew, and many may come until then."""


def tokens_per_s(ready: Collection[Worker]) -> float:
    """What they answer together, as measured; 0 before the first answer."""
    return sum(worker.tokens_per_s for worker in ready)


def measured_speeds(ready: Collection[Worker], pace: float, now: float, *, are_busy: bool) -> tuple[float, float]:
    """Of all of them at their pace, and of the fastest one's calls, in tokens a second, as far as other gateways leave
    it to this one; 0 where no call tells what they are now."""
    called = [worker for worker in ready if worker.cost.calls]
    if not (called and are_busy) and not any(now - worker.last_call < FRESH_S for worker in called):
        return 0.0, 0.0
    speeds = [worker.tokens_per_s * worker.free_share for worker in called]
    return pace * sum(speeds), max(speeds)


def full_call_s(ready: Collection[Worker]) -> float:
    """What a call over a full batch takes the slowest of them; 0 where nobody knows."""
    return max((worker.cost.call_s(worker.batch_tokens) for worker in ready if worker.cost.calls), default=0.0)
