"""The workers that are here: who may join, whom a newcomer replaces or relieves, who is ready. Pure.

Time comes in as `now`, in seconds of any monotonic clock. What each of them is: hearing.py, silence.py.
"""

from collections.abc import Iterator

from ostraka_gateway.caution import Caution
from ostraka_gateway.pace import Pace
from ostraka_gateway.worker import Worker, WorkerState
from ostraka_shared.messages import Hello, Refused


class Roster:
    """`pace` and `caution` are what their work together has taught, as each Worker has what its own has."""

    def __init__(self, cluster_id: str, fingerprint: str, now: float) -> None:
        self._cluster_id = cluster_id
        self.fingerprint = fingerprint
        self._workers: dict[bytes, Worker] = {}
        self._last_incarnation: dict[str, int] = {}
        self.restarts: dict[str, int] = {}
        # A gateway that starts may be another's successor, whose workers are about to find it.
        self.last_departure = now
        self.pace = Pace()
        self.caution = Caution()

    def __iter__(self) -> Iterator[Worker]:
        return iter(self._workers.values())

    def __len__(self) -> int:
        return len(self._workers)

    def find(self, identity: bytes) -> Worker | None:
        return self._workers.get(identity)

    def refusal(self, hello: Hello) -> Refused | None:
        """Why this worker must not join: said to it, for its log."""
        if hello.cluster_id != self._cluster_id:
            return Refused("wrong_cluster", f"this gateway serves cluster {self._cluster_id!r}")
        if hello.fingerprint != self.fingerprint:
            return Refused("wrong_model", f"this gateway serves the model with fingerprint {self.fingerprint}")
        if hello.incarnation < self._last_incarnation.get(hello.worker_id, 0):
            return Refused("stale_incarnation", f"a newer {hello.worker_id} has been here")
        return None

    def earlier_ones(self, identity: bytes, hello: Hello) -> list[Worker]:
        """Those a HELLO shows to be gone: the same worker before its restart, or before it lost its memory of us."""
        return [w for w in self if w.hello.worker_id == hello.worker_id or w.identity == identity]

    def relieves(self, hello: Hello, earlier: Worker) -> bool:
        """Whether the newcomer may have been started beside `earlier`, to take its place once it is ready. That this
        still runs is for others to see: a worker that has died is followed in the same way."""
        was = earlier.hello
        return (hello.worker_id, hello.host) == (was.worker_id, was.host) and hello.incarnation > was.incarnation

    def relieved_by(self, worker: Worker) -> list[Worker]:
        """Once it is ready: those that need not stay."""
        return [w for w in self if w is not worker and self.relieves(worker.hello, w)]

    def join(self, identity: bytes, hello: Hello, now: float) -> Worker:
        """After `refusal` found nothing and `earlier_ones` were removed."""
        before = self._last_incarnation.get(hello.worker_id)
        self.restarts.setdefault(hello.worker_id, 0)
        if before is not None and hello.incarnation > before:
            self.restarts[hello.worker_id] += 1
        self._last_incarnation[hello.worker_id] = hello.incarnation
        worker = self._workers[identity] = Worker(identity, hello, now)
        return worker

    def remove(self, worker: Worker, now: float) -> None:
        del self._workers[worker.identity]
        self.last_departure = now

    def ready_workers(self) -> list[Worker]:
        return [worker for worker in self if worker.state is WorkerState.READY]

    def expects_worker(self, now: float, patience_s: float) -> bool:
        """A worker is here, on its way, or left so recently that its replacement may be."""
        return any(w.state is not WorkerState.DRAINING for w in self) or now - self.last_departure < patience_s
