"""Keeps the gateways and workers running, and takes them down in order. Holds no request.

    starting ──all workers ready──► serving ──SIGTERM──► not ready, all is answered ──► gateways drain ──► workers drain
        │                              └──SIGINT, SIGHUP────────────────────────────────────┘                 └─► exit 0
        └── a child that cannot be kept up ──► everything is ended ──► exit 1
    a later second signal, or the grace period's end: what is left is killed

One thread, one wait: signals come as bytes and are taken there one by one, so nothing happens at a place not written
here. A worker that dies while the gateways drain is still replaced: it may hold the requests that are waited for.
"""

import contextlib
import signal
import socket
import time
from enum import Enum, auto

import psutil
import structlog

from ostraka.children import Child
from ostraka.forking import awaited_channels, reap_strays
from ostraka.front_desk import FrontDesk
from ostraka.gateway_watch import GatewayWatch
from ostraka.generation import Generation
from ostraka.readiness import count_ready
from ostraka.recycling import Recycling
from ostraka.rolling import Prepare, Rolling
from ostraka.serve_config import StopConfig
from ostraka.signals import TakenSignals
from ostraka.stopping import Stopping, Wish

log = structlog.get_logger()

STARTING_POLL_S = 0.1
SERVING_POLL_S = 1.0
EXIT_FAILED = 1


class Phase(Enum):
    STARTING = auto()
    SERVING = auto()
    NOT_READY = auto()
    DRAINING_GATEWAYS = auto()
    DRAINING_WORKERS = auto()


class Supervisor:
    """`listener` is what all gateways accept on. `first` is the generation to begin with."""

    def __init__(
        self,
        first: Generation,
        listener: socket.socket,
        times: StopConfig,
        recycling: Recycling | None = None,
    ) -> None:
        self._first = first
        self._rolling: Rolling | None = None
        self._recycling = recycling
        self._gateway_watch = GatewayWatch()
        self._listener = listener
        self._times = times
        self._stopping = Stopping(times.not_ready_s)
        self._phase = Phase.STARTING
        self._begun = time.monotonic()
        self._drain_begins = self._drain_ends = float("inf")
        self._shown: tuple[int, int] | None = None
        self._has_served = False
        self._exit_code = 0

    def take_rollouts(self, desk: FrontDesk, prepare: Prepare) -> None:
        """To be called before `run`: whoever comes to the desk may have another generation take over."""
        self._rolling = Rolling(desk, self._first, prepare, self._times.grace_s)

    def run(self, signals: TakenSignals) -> int:
        """Until told to stop, or until a child cannot be kept up. Returns the exit code."""
        try:
            for child in self._children():
                self._start(child)
            while self._is_up or any(child.is_running for child in self._children()):
                self._turn(signals)
        finally:
            self._kill_all()
            if self._rolling:
                self._rolling.close()
        log.info("stopped", exit_code=self._exit_code)
        return self._exit_code

    @property
    def _is_up(self) -> bool:
        return self._phase in (Phase.STARTING, Phase.SERVING, Phase.NOT_READY)

    @property
    def _serving(self) -> Generation:
        return self._rolling.serving if self._rolling else self._first

    @property
    def _gateways(self) -> list[Child]:
        return self._serving.gateways

    @property
    def _workers(self) -> list[Child]:
        return self._serving.workers

    @property
    def _generations(self) -> list[Generation]:
        return [self._serving, *(self._rolling.others if self._rolling else ())]

    def _children(self) -> list[Child]:
        return [child for generation in self._generations for child in generation.children]

    def _turn(self, signals: TakenSignals) -> None:
        others = self._rolling.sockets if self._rolling else []
        found = signals.wait(self._wait_s(), [*awaited_channels(self._children()), *others])
        if found and found != signal.SIGCHLD:
            self._on_stop_signal(found)
        for child in self._children():
            if (code := child.reap()) is not None:
                self._on_exit(child, _describe_exit(code))
        if any(generation.zygotes for generation in self._generations):
            reap_strays({child.process.pid for child in self._children() if child.process})
        self._go_on_stopping()
        doors = [door for generation in self._generations for door in generation.doors]
        self._gateway_watch.turn(doors, time.monotonic())
        if self._rolling:
            self._rolling.turn(may_begin=self._phase is Phase.SERVING)
        self._start_due()
        if self._phase is Phase.STARTING:
            self._show_progress()
        if self._phase is Phase.SERVING:
            self._recycle()
        if time.monotonic() >= self._drain_ends:
            log.warning("grace_period_over", still_running=[c.name for c in self._children() if c.is_running])
            self._exit_code = EXIT_FAILED
            self._kill_all()

    def _wait_s(self) -> float:
        is_watched = self._phase is Phase.STARTING or (self._rolling and self._rolling.is_under_way)
        poll_s = STARTING_POLL_S if is_watched else SERVING_POLL_S
        due = [child.restart_at for child in self._children() if child.restart_at is not None]
        until_s = min([self._drain_begins, self._drain_ends, *due]) - time.monotonic()
        return max(0.0, min(poll_s, until_s))

    def _start(self, child: Child) -> None:
        try:
            child.start()
        except OSError as bad:  # no process or memory to spare: tried again like any other death
            self._on_exit(child, str(bad))
        else:
            if self._phase is Phase.NOT_READY:
                self._serving.announce()

    def _on_exit(self, child: Child, code: str) -> None:
        if self._rolling and self._rolling.exited(child, code):
            return
        if child in self._serving.relieved:
            self._serving.relieved.remove(child)
            log.info("worker_recycled", child=child.name, code=code)
            return
        is_drained = self._phase is Phase.DRAINING_WORKERS or child in self._gateways
        if is_drained and not self._is_up:
            log.debug("child_stopped", child=child.name, code=code)
            # Other than these, it left something unanswered; SIGTERM ends one that has not begun to serve.
            if child in self._gateways and code not in ("0", signal.SIGTERM.name):
                self._exit_code = EXIT_FAILED
            return
        child.schedule_restart(has_been_ready=self._has_served)
        log.warning("child_exited", child=child.name, code=code, in_a_row=child.policy.quick_deaths)
        if self._is_up and any(all(each.is_given_up for each in kind) for kind in (self._gateways, self._workers)):
            log.error("cannot_keep_up", child=child.name, hint="its own lines above say why")
            self._exit_code = EXIT_FAILED
            self._start_drain()

    def _start_due(self) -> None:
        now = time.monotonic()
        for child in self._children():
            if child.restart_at is not None and child.restart_at <= now:
                self._start(child)

    def _recycle(self) -> None:
        """One at a time. The gateways see that the new one is ready, and have the other leave."""
        generation = self._serving
        if self._recycling is None or generation.relieved:
            return
        rss_bytes = {worker.name: size for worker in generation.workers if (size := resident_bytes(worker))}
        if due := self._recycling.choose(time.monotonic(), rss_bytes):
            hint = {"hint": "a fresh worker takes as much: raise --max-worker-rss-mb"} if due.is_again else {}
            log.warning("recycling_worker", child=due.worker, rss_mb=rss_bytes[due.worker] >> 20, **hint)
            self._start(generation.relieve(due.worker))

    def _on_stop_signal(self, number: signal.Signals) -> None:
        now = time.monotonic()
        match self._stopping.signalled(number, now, is_serving=self._phase is Phase.SERVING):
            case Wish.ANNOUNCE:
                log.info("not_ready", signal=number.name, not_ready_s=self._times.not_ready_s)
                self._phase, self._drain_begins = Phase.NOT_READY, now + self._times.not_ready_s
                self._cancel_rollout()
                self._serving.announce()
            case Wish.DRAIN:
                self._start_drain()
            case Wish.KILL:
                log.warning("stopping_now", signal=number.name)
                self._phase, self._exit_code = Phase.DRAINING_WORKERS, EXIT_FAILED
                self._kill_all()

    def _cancel_rollout(self) -> None:
        if self._rolling:
            self._rolling.cancel("the server is stopping")

    def _start_drain(self) -> None:
        """The gateways first: they take nothing new and wait for their answers, which the workers still give."""
        log.info("stopping", grace_s=self._times.grace_s)
        self._cancel_rollout()
        now = time.monotonic()
        self._stopping.begun_without(now)
        self._phase = Phase.DRAINING_GATEWAYS
        self._drain_begins, self._drain_ends = float("inf"), now + self._times.grace_s
        for gateway in self._gateways:
            gateway.restart_at = None
            gateway.send(signal.SIGTERM)
        # Closed alone, clients would go on connecting while one gateway still has it open, and wait for nobody.
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)

    def _go_on_stopping(self) -> None:
        if self._phase is Phase.NOT_READY and time.monotonic() >= self._drain_begins:
            self._start_drain()
        if self._phase is Phase.DRAINING_GATEWAYS and not any(gateway.is_running for gateway in self._gateways):
            self._drain_workers()

    def _drain_workers(self) -> None:
        self._phase = Phase.DRAINING_WORKERS
        for child in (*self._serving.zygotes, *self._workers, *self._serving.relieved):
            child.restart_at = None
            child.send(signal.SIGTERM)

    def _kill_all(self) -> None:
        for child in self._children():
            child.restart_at = None
            child.send(signal.SIGKILL)
            if child.process:
                child.process.wait()
                child.process = None
        self._drain_begins = self._drain_ends = float("inf")

    def _show_progress(self) -> None:
        ready, wanted = self._count_ready(), sum(not worker.is_given_up for worker in self._workers)
        if ready is None or (ready, wanted) == self._shown:
            return
        self._shown = (ready, wanted)  # a worker given up makes those that are ready all that are wanted
        log.info("workers_loading" if ready < wanted else "workers_ready", ready=ready, of=wanted)
        if ready >= wanted:
            self._phase = Phase.SERVING
            self._has_served = True
            log.info("listening", url=shown(self._listener), startup_s=round(time.monotonic() - self._begun, 2))

    def _count_ready(self) -> int | None:
        asked = zip(self._gateways, self._serving.figures_at, strict=True)
        return count_ready([path for gateway, path in asked if not gateway.is_given_up])


def resident_bytes(child: Child) -> int:
    """0 where it does not run yet, or any more."""
    try:
        return int(psutil.Process(child.process.pid).memory_info().rss) if child.process and child.process.pid else 0
    except psutil.Error:
        return 0


def shown(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def _describe_exit(code: int) -> str:
    return signal.Signals(-code).name if code < 0 else str(code)
