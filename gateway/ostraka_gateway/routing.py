"""Which workers have room for a request, and which of them comes first. Pure."""

from collections.abc import Iterable

from ostraka_gateway.roster import Worker


def is_long(worker: Worker, tokens: int) -> bool:
    """More than the worker's whole credit. It reads such a request in turns with shorter ones, one at a time."""
    return tokens > worker.credit_tokens


def has_room(worker: Worker, tokens: int) -> bool:
    """A worker that holds nothing takes a request of any size; beside others a long one takes half the credit."""
    if not worker.held:
        return True
    if is_long(worker, tokens):
        return not worker.holds_long and worker.claimed_tokens + worker.credit_tokens // 2 <= worker.credit_tokens
    return worker.claimed_tokens + tokens <= worker.credit_tokens


def candidates(ready: Iterable[Worker], tokens: int) -> list[Worker]:
    """Those with room, the best first."""
    return sorted((worker for worker in ready if has_room(worker, tokens)), key=rank)


def rank(worker: Worker) -> tuple[float, int]:
    """The one that will be done first is first. Ties go to the one served longest ago, so that a quiet cluster does not
    send everything to its first worker."""
    return worker.predicted_s, worker.last_turn
