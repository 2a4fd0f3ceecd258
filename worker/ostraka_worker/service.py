"""A worker's life: loading -> warming -> ready -> draining -> stopped, and the loop that answers in between.

One thread does everything, in one order: take what arrived, drop what expired or was cancelled, make one model call,
answer what is complete. So a BEAT or a STARTED is proof that inference moves, not just that a process exists.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import psutil
import structlog

from ostraka_shared.errors import Cancelled, DeadlineExceeded, OstrakaError
from ostraka_shared.messages import (
    Beat,
    Bye,
    Cancel,
    Drain,
    Failed,
    Hello,
    Message,
    Ready,
    Refused,
    Result,
    Started,
    Welcome,
    Work,
)
from ostraka_worker.batcher import Waiting
from ostraka_worker.engine import Engine, Line
from ostraka_worker.idle import IdleCalls
from ostraka_worker.schedule import Running, Schedule
from ostraka_worker.snapshots import Snapshots

log = structlog.get_logger()

DEFAULT_HEARTBEAT_S = 0.5
"""Until the gateway's WELCOME says otherwise."""
WARM_UP_SHAPES = ((1, 32), (8, 32), (2, 128))
"""Calls made before READY, as (prompts, tokens each): the first call of a shape allocates what later ones reuse. The
gateway is told the last one's speed."""


class Link(Protocol):
    """What the service needs of the wire."""

    dropped_frames: int

    def send(self, message: Message) -> bool: ...

    def receive(self, timeout_s: float) -> list[Message]: ...

    def was_cut(self) -> bool: ...


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


@dataclass(slots=True)
class Counters:
    batches_done: int = 0
    batched_requests: int = 0


class Service:
    """The phases are called in order: `introduce`, `load`, `warm_up`, `run`; or `introduce`, `adopt`, `run`."""

    def __init__(
        self,
        link: Link,
        hello: Hello,
        batch_tokens: int,
        credit_tokens: int,
        snapshots: Snapshots,
        idle_call_s: float = 0.0,
    ) -> None:
        self._link = link
        self._hello = hello
        self._credit_tokens = credit_tokens
        self._schedule = Schedule(batch_tokens, snapshots)
        self._snapshots = snapshots
        self._process = psutil.Process()
        self._heartbeat_s = DEFAULT_HEARTBEAT_S
        self._next_beat = 0.0
        self._idle_calls = IdleCalls(idle_call_s, time.monotonic())
        self._counters = Counters()
        self._tokens_per_s = 0.0
        self._is_registering = False
        self._is_draining = False
        self._is_told_to_drain = False
        self._engine: Engine
        self.refusal: Refused | None = None

    def request_drain(self) -> None:
        """Safe in a signal handler: the loop sees it at its next turn, within a heartbeat or a call."""
        self._is_told_to_drain = True

    def introduce(self) -> None:
        """Before the model loads: the gateway then knows that a worker is coming."""
        self._link.send(self._hello)

    def load(self, load_engine: Callable[[], Engine]) -> None:
        self._engine = load_engine()

    def warm_up(self) -> None:
        self._tokens_per_s = warm_up(self._engine)

    def adopt(self, engine: Engine, tokens_per_s: float) -> None:
        """Instead of `load` and `warm_up`: an engine that was warm when this process was forked."""
        self._engine, self._tokens_per_s = engine, tokens_per_s

    def run(self) -> None:
        """Serves until drained, or refused for good (`refusal` then says why)."""
        self._announce_ready()
        while self.refusal is None and not (self._is_draining and self._schedule.is_idle):
            if self._is_told_to_drain and not self._is_draining:
                self._start_draining()
            self._take_messages(self._until_beat_s() if self._schedule.is_idle else 0.0)
            self._drop_expired()
            self._take_turn()
            self._call_if_idle()
            self._beat_if_due()
        if self.refusal is None:
            self._link.send(Bye("drained"))

    def _announce_ready(self) -> None:
        self._link.send(Ready(self._engine.version, self._credit_tokens, self._tokens_per_s))

    def _start_draining(self) -> None:
        self._is_draining = True
        self._link.send(Drain())
        log.info("draining", queued_requests=self._schedule.queued_requests)

    def _take_messages(self, timeout_s: float) -> None:
        for message in self._link.receive(timeout_s):
            match message:
                case Work():
                    self._schedule.add(Waiting.take(message, time.monotonic()))
                case Cancel():
                    if waiting := self._schedule.cancel(message.request_id, message.attempt):
                        self._fail(waiting, Cancelled("nobody waits for it any more"))
                case Welcome():
                    self._is_registering = False
                    self._heartbeat_s = message.heartbeat_ms / 1000
                case Refused(code="unknown_worker"):
                    self._register_again()
                case Refused():
                    self.refusal = message
                case Drain():
                    self.request_drain()
                case _:
                    log.warning("unexpected_message", kind=type(message).__name__)
        if self._link.was_cut():
            self._is_registering = False  # that HELLO may be lost too
            self._register_again()

    def _register_again(self) -> None:
        """The gateway restarted, or the link was cut: work or results may have been lost on the way, and only a new
        HELLO has the gateway give what we held to others. Whoever waited for the requests held here no longer does.

        Once: every message that the old gateway did not live to read is refused by the new one, one by one.
        """
        if self._is_registering:
            return
        self._is_registering = True
        log.info("registering_again", abandoned_requests=self._schedule.queued_requests)
        self._schedule.clear()
        self.introduce()
        self._announce_ready()
        if self._is_draining:
            self._link.send(Drain())

    def _drop_expired(self) -> None:
        for waiting in self._schedule.expire(time.monotonic()):
            self._fail(waiting, DeadlineExceeded("the deadline passed before a worker was done"))

    def _take_turn(self) -> None:
        """One model call. Between two of them the worker stays reachable, however large a request is."""
        begun = time.monotonic()
        running = self._schedule.turn(begun)
        if running is None:
            return
        if call := running.upcoming:
            self._link.send(Started(running.run.request_ids(call), running.run.tokens(call)))
            running.run.run(self._engine, call)
            self._schedule.ran(running, time.monotonic() - begun)
        if running.upcoming is None:
            self._answer(running)
        self._idle_calls.worked(time.monotonic())

    def _call_if_idle(self) -> None:
        """Raises what the engine raises: a worker that cannot even do this is better replaced."""
        begun = time.monotonic()
        if self._schedule.is_idle and self._idle_calls.is_due(begun):
            self._engine.run([Line(np.ones(SHORT_CALL_TOKENS, np.uint32))])
            self._idle_calls.called(begun, time.monotonic())

    def _answer(self, running: Running) -> None:
        answers = running.run.answers()
        for place, waiting in self._schedule.finish(running):
            if failure := running.run.failures.get(place):
                self._fail(waiting, failure)
                continue
            queue_ms = (running.begun - waiting.received) * 1000
            work = waiting.work
            self._link.send(Result(work.request_id, work.attempt, answers[place], queue_ms, running.inference_s * 1000))
        self._counters.batches_done += 1
        self._counters.batched_requests += len(running.batch) if len(running.batch) > 1 else 0

    def _fail(self, waiting: Waiting, error: OstrakaError) -> None:
        self._link.send(Failed(waiting.work.request_id, waiting.work.attempt, error.code, str(error)))

    def _until_beat_s(self) -> float:
        return max(0.0, self._next_beat - time.monotonic())

    def _beat_if_due(self) -> None:
        now = time.monotonic()
        if now < self._next_beat:
            return
        self._next_beat = now + self._heartbeat_s
        self._link.send(
            Beat(
                queued_requests=self._schedule.queued_requests,
                queued_tokens=self._schedule.queued_tokens,
                batches_done=self._counters.batches_done,
                batched_requests=self._counters.batched_requests,
                dropped_frames=self._link.dropped_frames,
                rss_bytes=self._process.memory_info().rss,
                **self._snapshots.report(),
            )
        )
