"""A worker's life: loading -> warming -> ready -> draining -> stopped, and the loop that answers in between.

One thread does everything, in one order: take what arrived, drop what expired or was cancelled, make one model call,
answer what is complete. So a BEAT or a STARTED is proof that inference moves, not just that a process exists.
"""

import time
from collections.abc import Callable
from functools import partial

import numpy as np
import structlog

from ostraka_shared.errors import DeadlineExceeded
from ostraka_shared.messages import Hello, Ready, Refused
from ostraka_worker.engine import Engine, Line
from ostraka_worker.hearing import Hearing, Links
from ostraka_worker.idle import IdleCalls
from ostraka_worker.registration import Registration, Registrations
from ostraka_worker.reports import Reports
from ostraka_worker.schedule import Schedule
from ostraka_worker.sharing import Sharing
from ostraka_worker.snapshots import Snapshots

log = structlog.get_logger()

WARM_UP_SHAPES = ((1, 32), (8, 32), (2, 128))
"""Calls made before READY, as (prompts, tokens each): the first call of a shape allocates what later ones reuse. The
gateway is told the last one's speed."""
LAST_WORK_S = 0.1
"""For work that was on its way when the gateways were told of the drain. What comes later is not lost: they give it to
another."""
SHORT_CALL_TOKENS = 2
"""Each weight is used all the same: 13 ms in int8, 36 in fp32."""


def warm_up(engine: Engine) -> float:
    """Tokens a second of the last call."""
    tokens_per_s = 0.0
    for prompts, tokens in WARM_UP_SHAPES:
        begun = time.monotonic()
        engine.run([Line(np.ones(tokens, np.uint32))] * prompts)
        tokens_per_s = prompts * tokens / max(time.monotonic() - begun, 1e-6)
    return tokens_per_s


class Service:
    """The phases are called in order: `introduce`, `load`, `warm_up`, `run`; or `introduce`, `adopt`, `run`."""

    def __init__(
        self,
        links: Links,
        hello: Hello,
        batch_tokens: int,
        credit_tokens: int,
        snapshots: Snapshots,
        idle_call_s: float = 0.0,
    ) -> None:
        self._links = links
        self._credit_tokens = credit_tokens
        self._schedule = Schedule(batch_tokens, snapshots)
        sharing = Sharing(credit_tokens, batch_tokens, len(links))
        self._registrations = Registrations(Registration(hello, partial(links.send, n)) for n in range(len(links)))
        self._reports = Reports(self._registrations, self._schedule, snapshots, sharing)
        self._hearing = Hearing(links, self._registrations, self._schedule, sharing, self._reports)
        self._idle_calls = IdleCalls(idle_call_s, time.monotonic())
        self._tokens_per_s = 0.0
        self._is_draining = False
        self._engine: Engine

    @property
    def refusal(self) -> Refused | None:
        """Why no gateway wants this worker any more."""
        return self._registrations.refusal

    def request_drain(self) -> None:
        """Safe in a signal handler: the loop sees it at its next turn: after the call that runs, or at once where the
        links wake on signals."""
        self._hearing.is_told_to_drain = True

    def introduce(self) -> None:
        """Before the model loads: the gateways then know that a worker is coming."""
        self._registrations.introduce()

    def load(self, load_engine: Callable[[], Engine]) -> None:
        self._engine = load_engine()

    def warm_up(self) -> None:
        self._tokens_per_s = warm_up(self._engine)

    def adopt(self, engine: Engine, tokens_per_s: float) -> None:
        """Instead of `load` and `warm_up`: an engine that was warm when this process was forked."""
        self._engine, self._tokens_per_s = engine, tokens_per_s

    def run(self) -> None:
        """Serves until drained, or refused for good (`refusal` then says why)."""
        self._registrations.announce(Ready(self._engine.version, self._credit_tokens, self._tokens_per_s))
        while self.refusal is None and not (self._is_draining and self._schedule.is_idle):
            if self._hearing.is_told_to_drain and not self._is_draining:
                self._is_draining = True
                self._registrations.drain()
                log.info("draining", queued_requests=len(self._schedule.waiting))
            self._hearing.take(self._patience_s(time.monotonic()))
            for waiting in self._schedule.expire(time.monotonic()):
                self._reports.failed(waiting, DeadlineExceeded("the deadline passed before a worker was done"))
            self._take_turn()
            self._call_if_idle()
            self._reports.beat_if_due(time.monotonic(), self._links.dropped_frames)
        self._registrations.leave()

    def _patience_s(self, now: float) -> float:
        """How long to wait for something to come."""
        if not self._schedule.is_idle:
            return 0.0
        left_s = self._reports.until_beat_s(now)
        return min(LAST_WORK_S, left_s) if self._is_draining else left_s

    def _take_turn(self) -> None:
        """One model call. Between two of them the worker stays reachable, however large a request is."""
        begun = time.monotonic()
        running = self._schedule.turn(begun)
        if running is None:
            return
        call = running.upcoming
        if call:
            self._reports.started(running, call)
            running.run.run(self._engine, call)
            self._schedule.ran(running, time.monotonic() - begun)
        if running.upcoming is None:
            self._reports.answered(running)
        now = time.monotonic()
        if call:
            self._reports.ended(running, call, now - begun, now)
        self._idle_calls.worked(now)

    def _call_if_idle(self) -> None:
        """Raises what the engine raises: a worker that cannot even do this is better replaced."""
        begun = time.monotonic()
        if self._schedule.is_idle and self._idle_calls.is_due(begun):
            self._engine.run([Line(np.ones(SHORT_CALL_TOKENS, np.uint32))])
            self._idle_calls.called(begun, time.monotonic())
