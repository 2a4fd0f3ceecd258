"""Which worker gets the next request. Pure."""

from collections.abc import Iterable

from ostraka_gateway.roster import Worker


def choose(ready: Iterable[Worker], tokens: int) -> Worker | None:
    """The ready worker with the least outstanding tokens whose credit has room; None if the request must wait.

    A worker that holds nothing takes a request of any size. Ties go to the one served longest ago, so that a quiet
    cluster does not send everything to its first worker.
    """
    able = [w for w in ready if not w.outstanding_tokens or w.outstanding_tokens + tokens <= w.credit_tokens]
    return min(able, key=lambda worker: (worker.outstanding_tokens, worker.last_turn), default=None)
