"""Which workers have room for a request, and which of them comes first. Pure.

Least predicted time, but for affinity: a worker that keeps the request's state is preferred for as long as waiting for
it costs less than reading the state again. A state nobody keeps goes, among those equally loaded, to the one that
rendezvous hashing names: several gateways, or one after a restart, then agree without a word.
"""

from collections.abc import Iterable
from hashlib import blake2b

from ostraka_gateway.worker import State, Worker
from ostraka_shared.reading_rules import LEAST_PREFIX_TOKENS

KEY_BYTES = 8


def state_of(prefix: bytes, state_tokens: int, token_bytes: int) -> State | None:
    if state_tokens < LEAST_PREFIX_TOKENS:
        return None
    return State(blake2b(prefix[: state_tokens * token_bytes], digest_size=KEY_BYTES).digest(), state_tokens)


def candidates(ready: Iterable[Worker], tokens: int, state: State | None = None) -> list[Worker]:
    """Those with room, the best first."""
    able = sorted(
        (worker for worker in ready if worker.credit.has_room(worker.tokens_to_read(tokens, state))), key=rank
    )
    if state is None or len(able) < 2:
        return able
    first = _owner(able, state)
    return [first, *(worker for worker in able if worker is not first)]


def rank(worker: Worker) -> tuple[float, int]:
    """The one that will be done first is first. Ties go to the one served longest ago, so that a quiet cluster does not
    send everything to its first worker."""
    return worker.predicted_s, worker.last_turn


def _owner(able: list[Worker], state: State) -> Worker:
    least_s = able[0].predicted_s
    for worker in able:
        saved_s = state.tokens / (worker.speed or 1.0)
        if worker.keeps(state) and worker.predicted_s - least_s <= saved_s:
            return worker
    equals = [worker for worker in able if worker.predicted_s == least_s]
    return max(equals, key=lambda worker: _score(worker, state)) if len(equals) > 1 else able[0]


def _score(worker: Worker, state: State) -> bytes:
    return blake2b(state.key, digest_size=KEY_BYTES, key=worker.hello.worker_id.encode()[:64]).digest()
