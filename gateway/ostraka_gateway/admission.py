"""Whether a request may wait for a worker, or is better refused at once. Pure."""

from dataclasses import dataclass

from ostraka_shared.errors import NoWorkerReady, Overloaded

RETRY_WHEN_STARTING_S = 1.0
MAX_RETRY_S = 20.0
"""The official SDK gives up at once on a wait beyond its whole budget of 30 s."""


@dataclass(frozen=True, slots=True)
class Load:
    """`tokens_per_s` is measured; 0 while nothing has been."""

    queued_tokens: int
    tokens_per_s: float
    expects_worker: bool


def admit(tokens: int, deadline_s: float, load: Load, queue_limit_tokens: int) -> None:
    """Raises NoWorkerReady or Overloaded, each with the time after which a retry is likely to be let in.

    A request is refused if the queue before it would outlast its deadline. An empty queue takes any request.
    """
    if not load.expects_worker:
        raise NoWorkerReady("no worker is ready: the cluster is starting or has lost them all", RETRY_WHEN_STARTING_S)
    if not load.queued_tokens:
        return
    wait_s = load.queued_tokens / load.tokens_per_s if load.tokens_per_s else 0.0
    if wait_s > deadline_s:
        raise Overloaded(f"the queue is {wait_s:.1f} s long and the deadline {deadline_s:.1f} s", _retry_s(wait_s))
    if load.queued_tokens + tokens > queue_limit_tokens:
        raise Overloaded(f"{load.queued_tokens} tokens are waiting, of {queue_limit_tokens} at most", _retry_s(wait_s))


def _retry_s(wait_s: float) -> float:
    """Half the queue gone is room again."""
    return min(max(wait_s / 2, 0.1), MAX_RETRY_S)
