"""The gateway's side of the cluster: hears the workers, keeps the roster true, and tells the dispatcher."""

import asyncio
from collections.abc import Callable
from functools import partial
from pathlib import Path

import structlog

from ostraka_gateway import hearing
from ostraka_gateway.answer_cache import AnswerCache
from ostraka_gateway.dispatcher import Dispatcher
from ostraka_gateway.inquest import certify_crash, inquire
from ostraka_gateway.metrics import Metrics
from ostraka_gateway.process_watch import ProcessWatch
from ostraka_gateway.roster import Roster
from ostraka_gateway.silence import Silence, forgive
from ostraka_gateway.single_flight import SingleFlight
from ostraka_gateway.transport import WorkerSocket
from ostraka_gateway.worker import Worker, WorkerState
from ostraka_shared.addresses import folder_of
from ostraka_shared.death_notes import CRASHED
from ostraka_shared.errors import WireError
from ostraka_shared.messages import (
    PROTOCOL_VERSION,
    Beat,
    Bye,
    Drain,
    Failed,
    Hello,
    Message,
    Ready,
    Refused,
    Result,
    Started,
    Welcome,
)

log = structlog.get_logger()

JUDGE_PER_HEARTBEAT = 4
"""So that silence is noticed an eighth of a second late at most, where two beats, a second, are what is waited for."""


class Cluster:
    """Lives on one event loop: `start`, then `single_flight.ask` as often as wanted, then `stop`."""

    def __init__(
        self, roster: Roster, metrics: Metrics, heartbeat_ms: int, queue_tokens: int, answer_cache_bytes: int = 0
    ) -> None:
        self.roster = roster
        self.metrics = metrics
        self._heartbeat_ms = heartbeat_ms
        self._silence = Silence(heartbeat_ms / 1000)
        self._socket = WorkerSocket(self._on_message, self._on_garbage)
        self._watch = ProcessWatch()
        on_unreachable = partial(self._lose, reason="unreachable")
        self.dispatcher = Dispatcher(roster, metrics, self._socket.send, on_unreachable)
        answers = AnswerCache(answer_cache_bytes)
        self.single_flight = SingleFlight(roster, metrics, self.dispatcher, answers, queue_tokens)
        self.await_worker: Callable[[float], None] = self._socket.await_message
        self.bind_again: Callable[[], None]
        self._notes: Path | None = None
        self._judge_timer: asyncio.TimerHandle | None = None
        self._judge_due = 0.0
        self._garbage_reasons: set[str] = set()

    def start(self, endpoint: str) -> None:
        """Raises OSError, as does `bind_again`, which is for where the socket's file is gone."""
        self._socket.bind(endpoint)
        self.bind_again = partial(self._socket.bind_again, endpoint)
        self._notes = folder_of(endpoint)
        self._judge_due = asyncio.get_running_loop().time()
        self._judge()

    def stop(self) -> None:
        if self._judge_timer:
            self._judge_timer.cancel()
        for worker in list(self.roster):
            self._watch.remove(worker.identity)
        self._socket.close()

    def _on_message(self, identity: bytes, message: Message) -> None:
        if isinstance(message, Hello):
            self._greet(identity, message)
            return
        worker = self.roster.find(identity)
        if worker is None:
            # A worker from before this gateway's own start, or one we gave up: it may join again.
            self.metrics.dropped_frames.labels("wrong_peer").inc()
            self._socket.send(identity, Refused("unknown_worker", "say HELLO first"))
            return
        now = asyncio.get_running_loop().time()
        if worker.state is WorkerState.SUSPECT:
            self.dispatcher.trusted(worker)
        hearing.heard(worker, self.roster.pace, now)
        self._act(worker, message)
        self.dispatcher.pump()

    def _act(self, worker: Worker, message: Message) -> None:
        match message:
            case Result():
                self.dispatcher.answered(worker, message)
            case Failed():
                self.dispatcher.failed(worker, message)
            case Started():
                hearing.started(worker, message)
            case Beat():
                hearing.beat(worker, message)
            case Ready():
                hearing.ready(worker, message)
                log.info("worker_ready", worker=worker.hello.worker_id, cores=worker.hello.cores)
                for relieved in self.roster.relieved_by(worker):
                    self._relieve(relieved)
            case Drain():
                hearing.draining(worker)
            case Bye():
                self._lose(worker, "bye")
            case _:
                self.metrics.dropped_frames.labels("wrong_peer").inc()

    def _greet(self, identity: bytes, hello: Hello) -> None:
        if refusal := self.roster.refusal(hello):
            log.warning("worker_refused", worker=hello.worker_id, code=refusal.code)
            self._socket.send(identity, refusal)
            return
        for earlier in self.roster.earlier_ones(identity, hello):
            if not (self.roster.relieves(hello, earlier) and self._watch.is_running(earlier.identity)):
                self._lose(earlier, "replaced")
        worker = self.roster.join(identity, hello, asyncio.get_running_loop().time())
        self._watch.add(identity, hello.host, hello.pid, lambda: self._on_exit(worker))
        self._socket.send(identity, Welcome(self._heartbeat_ms))
        log.info("worker_joined", worker=hello.worker_id, incarnation=hello.incarnation, pid=hello.pid)

    def _relieve(self, worker: Worker) -> None:
        """Its successor is ready: it answers what it holds, and leaves. One that is silent stays suspect: what it holds
        is with others already, and is not to be counted on."""
        if worker.state is not WorkerState.SUSPECT:
            hearing.draining(worker)
        self.metrics.recycled.inc()
        log.info("worker_relieved", worker=worker.hello.worker_id, pid=worker.hello.pid, held_requests=len(worker.held))
        self._socket.send(worker.identity, Drain())

    def _on_exit(self, worker: Worker) -> None:
        is_sibling = self._watch.is_sibling(worker.identity)
        self._watch.remove(worker.identity)
        self._socket.take_arrived()  # what it said before it died still counts
        if self._notes and is_sibling and self.roster.find(worker.identity) is worker:
            worker.state = WorkerState.SUSPECT  # no new work
            inquire(self._notes, worker.hello, partial(self._lose, worker))
        else:
            self._lose(worker, CRASHED)

    def _lose(self, worker: Worker, reason: str) -> None:
        """Idempotent: an exit may be noticed by its pidfd, its silence and its successor."""
        if self.roster.find(worker.identity) is not worker:
            return
        self.roster.remove(worker, asyncio.get_running_loop().time())
        self._watch.remove(worker.identity)
        if reason != "bye":
            self.metrics.lost_workers.labels(reason).inc()
            log.warning("worker_lost", worker=worker.hello.worker_id, reason=reason, held_requests=len(worker.held))
        self.dispatcher.take_back(worker, reason)
        self.dispatcher.pump()

    def _judge(self) -> None:
        loop = asyncio.get_running_loop()
        now = loop.time()
        try:
            self._socket.take_arrived()
            # Stopped together (a suspended machine, a paused container), this process may be the first to move again.
            if (late_s := now - self._judge_due) > self._heartbeat_ms / 1000:
                forgive(self.roster, late_s, now)
            for worker in self.roster:
                if self._silence.is_overdue(worker, now):
                    self._silence.look(worker, self._watch.core_times(worker.identity), now)
            suspect, lost = self._silence.judge(self.roster, now)
            for worker in suspect:
                log.warning("worker_suspect", worker=worker.hello.worker_id, held_requests=len(worker.held))
                self.dispatcher.suspected(worker)
            for worker in lost:
                self._kill(worker)
                self._lose(worker, "silent")
        finally:
            self._judge_due = now + self._heartbeat_ms / 1000 / JUDGE_PER_HEARTBEAT
            self._judge_timer = loop.call_at(self._judge_due, self._judge)

    def _kill(self, worker: Worker) -> None:
        if self._notes and self._watch.is_sibling(worker.identity):
            certify_crash(self._notes, worker.hello)
        self._watch.kill(worker.identity)

    def _on_garbage(self, identity: bytes, bad: WireError) -> None:
        """Counted each time, logged once a reason: a broken peer must not fill the disk."""
        self.metrics.dropped_frames.labels(bad.reason).inc()
        if bad.version is not None:
            self._socket.send(identity, _refuse_version(bad.version), bad.version)
        if bad.reason not in self._garbage_reasons:
            self._garbage_reasons.add(bad.reason)
            log.warning("frame_dropped", reason=bad.reason, detail=str(bad), peer=identity[:40].hex())


def _refuse_version(version: int) -> Refused:
    """As in a rolling upgrade, one side of which is on another machine."""
    both = f"this worker speaks protocol {version}, its gateway {PROTOCOL_VERSION}"
    return Refused("wrong_version", f"{both}: run the same version of Ostraka on both")
