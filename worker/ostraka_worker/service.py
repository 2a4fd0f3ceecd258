"""A worker's life: loading -> warming -> ready -> draining -> stopped, and the loop that answers in between.

One thread does everything, in one order: take what arrived, drop what expired, form a batch, run its calls, answer. So
a BEAT or a STARTED is proof that inference moves, not just that a process exists.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import psutil
import structlog

from ostraka_shared.errors import DeadlineExceeded, OstrakaError
from ostraka_shared.messages import (
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
    Work,
)
from ostraka_worker.batcher import Batcher, Waiting
from ostraka_worker.engine import Engine, Line
from ostraka_worker.inference import BatchRun
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


@dataclass(slots=True)
class Counters:
    batches_done: int = 0
    batched_requests: int = 0


class Service:
    """The phases are called in order: `introduce`, `load`, `warm_up`, `run`."""

    def __init__(self, link: Link, hello: Hello, batch_tokens: int, credit_tokens: int, snapshots: Snapshots) -> None:
        self._link = link
        self._hello = hello
        self._batch_tokens = batch_tokens
        self._credit_tokens = credit_tokens
        self._batcher = Batcher(batch_tokens)
        self._snapshots = snapshots
        self._process = psutil.Process()
        self._heartbeat_s = DEFAULT_HEARTBEAT_S
        self._next_beat = 0.0
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
        for prompts, tokens in WARM_UP_SHAPES:
            self._tokens_per_s = self._measure(prompts, tokens)

    def _measure(self, prompts: int, tokens: int) -> float:
        """Tokens a second of one call."""
        begun = time.monotonic()
        self._engine.run([Line(np.ones(tokens, np.uint32))] * prompts)
        return prompts * tokens / max(time.monotonic() - begun, 1e-6)

    def run(self) -> None:
        """Serves until drained, or refused for good (`refusal` then says why)."""
        self._announce_ready()
        while self.refusal is None and not (self._is_draining and not len(self._batcher)):
            if self._is_told_to_drain and not self._is_draining:
                self._start_draining()
            self._take_messages(0.0 if len(self._batcher) else self._until_beat_s())
            self._drop_expired()
            if batch := self._batcher.next_batch():
                self._answer(batch)
            self._beat_if_due()
        if self.refusal is None:
            self._link.send(Bye("drained"))

    def _announce_ready(self) -> None:
        self._link.send(Ready(self._engine.version, self._credit_tokens, self._tokens_per_s))

    def _start_draining(self) -> None:
        self._is_draining = True
        self._link.send(Drain())
        log.info("draining", queued_requests=len(self._batcher))

    def _take_messages(self, timeout_s: float) -> None:
        for message in self._link.receive(timeout_s):
            match message:
                case Work():
                    self._batcher.add(Waiting.take(message, time.monotonic()))
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
        HELLO has the gateway give what we held to others. Whoever waited for the queued requests no longer does.

        Once: every message that the old gateway did not live to read is refused by the new one, one by one.
        """
        if self._is_registering:
            return
        self._is_registering = True
        log.info("registering_again", abandoned_requests=len(self._batcher))
        self._batcher.clear()
        self.introduce()
        self._announce_ready()
        if self._is_draining:
            self._link.send(Drain())

    def _drop_expired(self) -> None:
        for waiting in self._batcher.drop_expired(time.monotonic()):
            self._fail(waiting, DeadlineExceeded("the deadline passed before a worker could start"))

    def _answer(self, batch: list[Waiting]) -> None:
        begun = time.monotonic()
        run = BatchRun([waiting.work for waiting in batch], self._batch_tokens, self._snapshots)
        for number, call in enumerate(run.calls):
            if number:  # a large request has many calls: stay reachable between them
                self._take_messages(0.0)
                self._beat_if_due()
            if all(waiting.deadline <= time.monotonic() for waiting in batch):
                self._give_up(batch)
                return
            self._link.send(Started(run.request_ids(call), run.tokens(call)))
            run.run(self._engine, call)
        inference_ms = (time.monotonic() - begun) * 1000
        for place, (waiting, p_yes) in enumerate(zip(batch, run.answers(), strict=True)):
            if failure := run.failures.get(place):
                self._fail(waiting, failure)
                continue
            queue_ms = (begun - waiting.received) * 1000
            work = waiting.work
            self._link.send(Result(work.request_id, work.attempt, p_yes, queue_ms, inference_ms))
        self._counters.batches_done += 1
        self._counters.batched_requests += len(batch) if len(batch) > 1 else 0

    def _give_up(self, batch: list[Waiting]) -> None:
        """A request of a million tokens would otherwise be read to its end, hours after its client left."""
        for waiting in batch:
            self._fail(waiting, DeadlineExceeded("the deadline passed before the last model call"))

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
                queued_requests=len(self._batcher),
                queued_tokens=self._batcher.queued_tokens,
                batches_done=self._counters.batches_done,
                batched_requests=self._counters.batched_requests,
                dropped_frames=self._link.dropped_frames,
                rss_bytes=self._process.memory_info().rss,
                **self._snapshots.report(),
            )
        )
