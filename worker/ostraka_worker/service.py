"""A worker's life: loading -> warming -> ready -> draining -> stopped, and the loop that answers in between.

One thread does everything, in one order: take what arrived, drop what expired or was cancelled, make one model call,
answer what is complete. So a BEAT or a STARTED is proof that inference moves, not just that a process exists.
"""

import time
from collections.abc import Callable
from typing import Protocol

import numpy as np
import structlog

from ostraka_shared.errors import Cancelled, DeadlineExceeded
from ostraka_shared.messages import Bye, Cancel, Drain, Hello, Message, Ready, Refused, Welcome, Work
from ostraka_worker.engine import Engine, Line
from ostraka_worker.fair_line import Waiting
from ostraka_worker.idle import IdleCalls
from ostraka_worker.registration import Registration
from ostraka_worker.reports import Reports
from ostraka_worker.schedule import Schedule
from ostraka_worker.sharing import Sharing
from ostraka_worker.snapshots import Snapshots

log = structlog.get_logger()

WARM_UP_SHAPES = ((1, 32), (8, 32), (2, 128))
"""Calls made before READY, as (prompts, tokens each): the first call of a shape allocates what later ones reuse. The
gateway is told the last one's speed."""
SHORT_CALL_TOKENS = 2
"""Each weight is used all the same: 13 ms in int8, 36 in fp32."""


class Links(Protocol):
    """What the service needs of the wire. Gateways are numbered from 0."""

    dropped_frames: int

    def __len__(self) -> int: ...

    def send(self, gateway: int, message: Message) -> bool: ...

    def receive(self, timeout_s: float) -> list[tuple[int, Message]]: ...

    def cut(self) -> list[int]: ...


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
        self._registrations = [Registration(hello, _to(links, gateway)) for gateway in range(len(links))]
        self._schedule = Schedule(batch_tokens, snapshots)
        self._sharing = Sharing(credit_tokens, batch_tokens, len(links))
        self._reports = Reports(self._registrations, self._schedule, snapshots, self._sharing)
        self._idle_calls = IdleCalls(idle_call_s, time.monotonic())
        self._tokens_per_s = 0.0
        self._is_draining = False
        self._is_told_to_drain = False
        self._engine: Engine

    @property
    def refusal(self) -> Refused | None:
        """Why no gateway wants this worker any more."""
        refusals = [registration.refusal for registration in self._registrations]
        return refusals[0] if all(refusals) else None

    def request_drain(self) -> None:
        """Safe in a signal handler: the loop sees it at its next turn, within a heartbeat or a call."""
        self._is_told_to_drain = True

    def introduce(self) -> None:
        """Before the model loads: the gateways then know that a worker is coming."""
        for registration in self._registrations:
            registration.introduce()

    def load(self, load_engine: Callable[[], Engine]) -> None:
        self._engine = load_engine()

    def warm_up(self) -> None:
        self._tokens_per_s = warm_up(self._engine)

    def adopt(self, engine: Engine, tokens_per_s: float) -> None:
        """Instead of `load` and `warm_up`: an engine that was warm when this process was forked."""
        self._engine, self._tokens_per_s = engine, tokens_per_s

    def run(self) -> None:
        """Serves until drained, or refused for good (`refusal` then says why)."""
        self._announce()
        while self.refusal is None and not (self._is_draining and self._schedule.is_idle):
            if self._is_told_to_drain and not self._is_draining:
                self._start_draining()
            is_idle = self._schedule.is_idle
            self._take_messages(self._reports.until_beat_s(time.monotonic()) if is_idle else 0.0)
            for waiting in self._schedule.expire(time.monotonic()):
                self._reports.failed(waiting, DeadlineExceeded("the deadline passed before a worker was done"))
            self._take_turn()
            self._call_if_idle()
            self._reports.beat_if_due(time.monotonic(), self._links.dropped_frames)
        for registration in self._registrations:
            registration.say(Bye("drained"))

    def _announce(self) -> None:
        now = time.monotonic()
        for gateway, registration in enumerate(self._registrations):
            credit_tokens = self._sharing.credit_of(gateway, now)
            registration.announce(Ready(self._engine.version, credit_tokens, self._tokens_per_s))

    def _start_draining(self) -> None:
        self._is_draining = True
        for registration in self._registrations:
            registration.drain()
        log.info("draining", queued_requests=self._schedule.queued_requests)

    def _take_messages(self, timeout_s: float) -> None:
        for gateway, message in self._links.receive(timeout_s):
            self._take(gateway, message)
        for gateway in self._links.cut():
            self._registrations[gateway].lose_link()
            self._register_again(gateway)

    def _take(self, gateway: int, message: Message) -> None:
        match message:
            case Work():
                now = time.monotonic()
                self._sharing.asked(gateway, now)
                self._schedule.add(Waiting.take(message, now, gateway))
            case Cancel():
                if waiting := self._schedule.cancel(message.request_id, message.attempt, gateway):
                    self._reports.failed(waiting, Cancelled("nobody waits for it any more"))
            case Welcome():
                self._registrations[gateway].welcome()
                self._reports.heartbeat_s = message.heartbeat_ms / 1000
            case Refused(code="unknown_worker"):
                self._register_again(gateway)
            case Refused():
                log.error("refused_by_gateway", gateway=gateway, code=message.code, detail=message.message)
                self._schedule.clear(gateway)
                self._registrations[gateway].refusal = message
            case Drain():
                self.request_drain()
            case _:
                log.warning("unexpected_message", kind=type(message).__name__)

    def _register_again(self, gateway: int) -> None:
        """Whoever waited for that gateway's requests held here no longer does. The others' go on."""
        if self._registrations[gateway].renew():
            log.info("registering_again", gateway=gateway, abandoned_requests=self._schedule.queued_requests)
            self._schedule.clear(gateway)

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


def _to(links: Links, gateway: int) -> Callable[[Message], bool]:
    return lambda message: links.send(gateway, message)
