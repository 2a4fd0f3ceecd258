"""When a worker is no longer to be trusted. Pure: time comes in as `now`, in seconds of any monotonic clock.

A worker is silent only if its inference loop is: each message it sends comes from there. A call's size says how long
silence may last. Time in which it wanted a core and had none is suspicious, since others may answer sooner; but it is
no reason to kill it and to blame what it holds: that ends by itself, and its successor would wait for a core too.
"""

from collections.abc import Iterable

from ostraka_gateway.worker import Worker, WorkerState
from ostraka_shared.core_times import CoreTimes

LOAD_S = 300.0
"""How long a worker may take from HELLO to READY: a large model from a cold disk."""
SUSPECT_BEATS = 2.0
LOST_CALLS = 1.5
LOST_BEATS = 3.0
"""A worker that stands still in a call of the longest step (256 tokens, fp32) is lost after 3.7 s: early enough for
another to answer before the default deadline. Patience is twice what the call should take, so this is three times."""
IDLE_S = 5.0
"""At least how long a worker that holds nothing of this gateway's may be silent. Nobody waits for it, and while it is
suspect it gets no work: that a busy machine let it wait for a core for two seconds is no reason to kill it. What hangs
is still replaced, and sooner than the default deadline, in case all workers do."""
STARVED_S = 15.0
"""So much is excused at most, as of a gateway: nobody waits for its answers any more."""


class Silence:
    """`heartbeat_s` is what workers are told to keep."""

    def __init__(self, heartbeat_s: float) -> None:
        self._heartbeat_s = heartbeat_s

    def judge(self, workers: Iterable[Worker], now: float) -> tuple[list[Worker], list[Worker]]:
        """Makes silent workers suspect. Those it did so to, and those silent for too long: lost."""
        suspect, lost = [], []
        for worker in workers:
            silent_s = now - worker.last_heard
            if silent_s - min(worker.starved_s, STARVED_S) > self._lost_after_s(worker):
                lost.append(worker)
            elif silent_s > self._suspect_after_s(worker) and worker.state is WorkerState.READY:
                worker.state = WorkerState.SUSPECT
                suspect.append(worker)
        return suspect, lost

    def _suspect_after_s(self, worker: Worker) -> float:
        return SUSPECT_BEATS * self._heartbeat_s + worker.patience_s

    def _lost_after_s(self, worker: Worker) -> float:
        if worker.state is WorkerState.STARTING:
            return LOAD_S
        after_s = LOST_BEATS * self._heartbeat_s + LOST_CALLS * worker.patience_s
        return after_s if worker.held else max(IDLE_S, after_s)

    def look(self, worker: Worker, times: CoreTimes | None, now: float) -> None:
        """To be told often of one that `is_overdue`. `times`: None where the system does not say; nothing is excused
        then."""
        if worker.looked and times:
            looked_at, before = worker.looked
            worker.starved_s += times.starved_s(before, now - looked_at)
        worker.looked = (now, times) if times else None

    def is_overdue(self, worker: Worker, now: float) -> bool:
        return now - worker.last_heard > self._heartbeat_s


def forgive(workers: Iterable[Worker], pause_s: float, now: float) -> None:
    """To be told when this process itself stood still: its workers were not silent, it was deaf. Who has been heard
    since is owed nothing: a hang of its own would go unseen for as long as the pause was."""
    for worker in workers:
        worker.last_heard = min(now, worker.last_heard + pause_s)
