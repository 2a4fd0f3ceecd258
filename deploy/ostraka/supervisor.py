"""Keeps the gateways and workers running, and takes them down in order. Holds no request.

    starting ──all workers ready──► serving ──told to stop──► as stopping.py says ──► exit 0
        └── a child that cannot be kept up ──► everything is ended ──► exit 1

One thread, one wait: signals come as bytes and are taken there one by one, so nothing happens at a place not written
here. A worker that dies while the gateways drain is still replaced: it may hold the requests that are waited for.
"""

import contextlib
import signal
import socket
import time
from collections.abc import Iterable

import psutil
import structlog

from ostraka.accept_queue import await_empty
from ostraka.children import Child
from ostraka.departure import end_workers
from ostraka.forking import awaited_channels, reap_strays
from ostraka.gateway_watch import GatewayWatch
from ostraka.generation import Generation
from ostraka.ground import Ground
from ostraka.recycling import Recycling
from ostraka.rolling import Rolling
from ostraka.serve_config import StopConfig
from ostraka.signals import IGNORED, TakenSignals
from ostraka.startup import Startup
from ostraka.stopping import Phase, Stopping, Wish
from ostraka.succession import Succession
from ostraka_shared.stray_signals import say_ignored

log = structlog.get_logger()

WATCHFUL_POLL_S = 0.1
SERVING_POLL_S = 0.25
EXIT_FAILED = 1


class Supervisor:
    """`listener` is what all gateways accept on."""

    def __init__(
        self,
        succession: Succession,
        rolling: Rolling,
        listener: socket.socket,
        times: StopConfig,
        recycling: Recycling,
        ground: Ground,
    ) -> None:
        self._succession = succession
        self._rolling = rolling
        self._recycling = recycling
        self._ground = ground
        self._gateway_watch = GatewayWatch()
        self._listener = listener
        self._times = times
        self._stopping = Stopping(times.grace_s, times.not_ready_s)
        self._startup = Startup(listener)
        self._exit_code = 0

    def run(self, signals: TakenSignals) -> int:
        """Until told to stop, or until a child cannot be kept up. Returns the exit code."""
        try:
            for child in self._succession.children:
                self._start(child)
            while self._stopping.is_up or any(child.is_running for child in self._succession.children):
                self._turn(signals)
        finally:
            _kill_all(self._succession.children)
            self._rolling.close()
            self._ground.close()
        log.info("stopped", exit_code=self._exit_code)
        return self._exit_code

    def _turn(self, signals: TakenSignals) -> None:
        running = self._succession
        channels = [*awaited_channels(running.children), *running.channels, *self._rolling.sockets]
        found = signals.wait(self._wait_s(), channels)
        if found and found != signal.SIGCHLD:
            self._on_signal(found)
        for child in running.children:
            if (code := child.reap()) is not None:
                self._on_exit(child, _describe_exit(code))
        if running.zygotes:
            reap_strays({child.process.pid for child in running.children if child.process})
        while wish := self._stopping.turn(time.monotonic(), has_gateway=running.serving.has_gateway):
            self._stop(wish)
        self._gateway_watch.turn(running.doors, time.monotonic())
        for zygote in running.zygotes:
            zygote.look(time.monotonic())
        self._rolling.turn(may_begin=self._is_serving)
        self._start_due()
        if self._stopping.phase is Phase.UP and not self._startup.is_over:
            self._startup.look(running.serving)
        if self._is_serving:
            self._recycle()
            self._ground.turn(time.monotonic())

    def _wait_s(self) -> float:
        is_close = self._gateway_watch.is_close or any(each.stopped_s is not None for each in self._succession.zygotes)
        is_watchful = self._rolling.is_under_way or is_close
        poll_s = WATCHFUL_POLL_S if is_watchful else SERVING_POLL_S
        due = [child.restart_at for child in self._succession.children if child.restart_at is not None]
        until_s = min([self._stopping.due, *due]) - time.monotonic()
        return max(0.0, min(poll_s, until_s))

    @property
    def _is_serving(self) -> bool:
        return self._startup.is_over and self._stopping.phase is Phase.UP

    def _start(self, child: Child) -> None:
        try:
            child.start()
        except OSError as bad:  # no process or memory to spare: tried again like any other death
            self._on_exit(child, str(bad))
        else:
            if self._stopping.phase is Phase.NOT_READY:
                self._succession.serving.announce()

    def _start_due(self) -> None:
        now = time.monotonic()
        for child in self._succession.children:
            if child.restart_at is not None and child.restart_at <= now:
                self._start(child)

    def _on_exit(self, child: Child, code: str) -> None:
        if self._rolling.exited(child, code):
            return
        serving = self._succession.serving
        if child in serving.relieved:
            serving.relieved.remove(child)
            log.info("worker_recycled", child=child.name, code=code)
            return
        is_drained = self._stopping.phase is Phase.WORKERS or child in serving.gateways
        if is_drained and not self._stopping.is_up:
            log.debug("child_stopped", child=child.name, code=code)
            # Other than these, it left something unanswered; SIGTERM ends one that has not begun to serve.
            if child in serving.gateways and code not in ("0", signal.SIGTERM.name):
                self._exit_code = EXIT_FAILED
            return
        child.schedule_restart(has_been_ready=self._startup.is_over)
        self._ground.hold_back(child, code)
        log.warning("child_exited", child=child.name, code=code, in_a_row=child.policy.quick_deaths)
        if self._stopping.is_up and _cannot_be_kept_up(serving):
            log.error("cannot_keep_up", child=child.name, hint="its own lines above say why")
            self._exit_code = EXIT_FAILED
            self._stop(self._stopping.drain(time.monotonic()))

    def _recycle(self) -> None:
        """One at a time. The gateways see that the new one is ready, and have the other leave."""
        generation = self._succession.serving
        if generation.relieved or not self._recycling.has_limit:
            return
        rss_bytes = {worker.name: size for worker in generation.workers if (size := resident_bytes(worker))}
        if due := self._recycling.choose(time.monotonic(), rss_bytes):
            hint = {"hint": "a fresh worker takes as much: raise --max-worker-rss-mb"} if due.is_again else {}
            log.warning("recycling_worker", child=due.worker, rss_mb=rss_bytes[due.worker] >> 20, **hint)
            self._start(generation.relieve(due.worker))

    def _on_signal(self, number: signal.Signals) -> None:
        if number in IGNORED:
            say_ignored(number)
        elif wish := self._stopping.signalled(number, time.monotonic(), is_serving=self._is_serving):
            self._stop(wish, number.name)

    def _stop(self, wish: Wish, told_by: str | None = None) -> None:
        """`told_by`: the signal that asked for just this."""
        serving = self._succession.serving
        match wish:
            case Wish.ANNOUNCE:
                log.info("not_ready", signal=told_by, not_ready_s=self._times.not_ready_s)
                self._rolling.cancel("the server is stopping")
                serving.announce()
            case Wish.DRAIN_GATEWAYS:
                log.info("stopping", grace_s=self._times.grace_s)
                self._rolling.cancel("the server is stopping")
                await_empty(self._listener)
                for gateway in serving.gateways:
                    gateway.restart_at = None
                    gateway.send(signal.SIGTERM)
                # Closed alone, clients would go on connecting while one gateway still has it open, and wait for nobody.
                with contextlib.suppress(OSError):
                    self._listener.shutdown(socket.SHUT_RDWR)
            case Wish.DRAIN_WORKERS:
                end_workers(serving, signal.SIGTERM)
            case Wish.KILL_WORKERS:
                left = [child.name for child in self._succession.children if child.is_running]
                log.warning("workers_killed", still_running=left)
                end_workers(serving, signal.SIGKILL)
            case Wish.KILL:
                log.warning("stopping_now", signal=told_by)
            case Wish.OVERDUE:
                left = [child.name for child in self._succession.children if child.is_running]
                log.warning("grace_period_over", still_running=left)
        if wish in (Wish.KILL, Wish.OVERDUE):
            self._exit_code = EXIT_FAILED
            _kill_all(self._succession.children)


def resident_bytes(child: Child) -> int:
    """0 where it does not run yet, or any more."""
    try:
        return int(psutil.Process(child.process.pid).memory_info().rss) if child.process and child.process.pid else 0
    except psutil.Error:
        return 0


def _kill_all(children: Iterable[Child]) -> None:
    for child in children:
        child.restart_at = None
        child.send(signal.SIGKILL)
        if child.process:
            child.process.wait()
            child.process = None


def _cannot_be_kept_up(generation: Generation) -> bool:
    return any(all(child.is_given_up for child in kind) for kind in (generation.gateways, generation.workers))


def _describe_exit(code: int) -> str:
    return signal.Signals(-code).name if code < 0 else str(code)
