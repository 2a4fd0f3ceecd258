"""Between the workers and the in-flight table: it tells the table what happens, and does what the table says."""

import asyncio
from collections.abc import Callable, Iterable

import structlog

from ostraka_gateway.in_flight import InFlight
from ostraka_gateway.metrics import Metrics
from ostraka_gateway.parts import Done, Instruction, Late, Redispatched, Request, Send, Withdraw
from ostraka_gateway.roster import Roster
from ostraka_gateway.speeds import tokens_per_s
from ostraka_gateway.worker import Worker
from ostraka_shared.messages import Failed, Message, Result

log = structlog.get_logger()


class Dispatcher:
    """`send(identity, message)` is False where the worker is unreachable; `on_unreachable` is then told. `line` is what
    waits for a worker."""

    def __init__(
        self,
        roster: Roster,
        metrics: Metrics,
        send: Callable[[bytes, Message], bool],
        on_unreachable: Callable[[Worker], None],
    ) -> None:
        self._roster = roster
        self._metrics = metrics
        self._send = send
        self._on_unreachable = on_unreachable
        self._table = InFlight(roster)
        self._sending = self._table.sending
        self.line = self._sending.line

    def add(self, request: Request) -> None:
        """It waits; the next `pump` may send it."""
        self._table.add(request)

    def hasten(self, request: Request, deadline: float) -> None:
        self._sending.hasten(request, deadline)

    def drop(self, request: Request) -> None:
        self._act(self._table.drop(request))
        self.pump()  # it may have been the one that others waited behind

    def pump(self) -> None:
        """Sends what waits, in order, as long as a worker has room. To be called whenever room may have come."""
        now = asyncio.get_running_loop().time()
        self._act(self._sending.pump(now))
        self._roster.pace.watch(now, tokens_per_s(self._roster.ready_workers()), is_waiting=self.line.count > 0)

    def answered(self, worker: Worker, result: Result) -> None:
        self._act(self._table.answered(worker, result))

    def failed(self, worker: Worker, failed: Failed) -> None:
        self._act(self._table.failed(worker, failed))

    def take_back(self, worker: Worker, reason: str) -> None:
        """What a lost worker held waits again. One that left in order was at its pace until then."""
        if reason != "bye":
            self._roster.pace.forget(asyncio.get_running_loop().time())
        self._act(self._table.lost(worker, reason))

    def suspected(self, worker: Worker) -> None:
        self._roster.pace.forget(asyncio.get_running_loop().time())
        self._act(self._table.suspected(worker))
        self.pump()

    def trusted(self, worker: Worker) -> None:
        self._table.trusted(worker)

    def _act(self, instructions: Iterable[Instruction]) -> None:
        for each in instructions:
            match each:
                case Send():
                    # Sending may fail, which takes all back from that worker: also what was to be sent to it next.
                    if each.part.holders.get(each.worker) != each.work.attempt:
                        continue
                    if not self._send(each.worker.identity, each.work):
                        self._on_unreachable(each.worker)
                case Withdraw():
                    self._send(each.worker.identity, each.message)
                case Done():
                    each.request.on_done(each.request)
                case Redispatched():
                    self._metrics.redispatched.labels(each.reason).inc()
                case Late():
                    self._count_late(each)

    def _count_late(self, late: Late) -> None:
        self._metrics.late_results.inc()
        if late.is_same is not None:
            self._metrics.duplicates.labels("same" if late.is_same else "different").inc()
        if late.is_same is False:
            log.error("answers_differ", request=late.part_id, detail="two workers answered the same differently")
