"""What the gateways say, and what becomes of it: work is scheduled, what nobody waits for any more is dropped.

A gateway that has restarted, or whose link was cut, is told anew who this is. What it had asked for is forgotten, for
nobody waits for it; the others' work goes on.
"""

import time
from typing import Protocol

import structlog

from ostraka_shared.errors import Cancelled
from ostraka_shared.messages import Cancel, Drain, Message, Refused, Welcome, Work
from ostraka_worker.fair_line import Waiting
from ostraka_worker.registration import Registrations
from ostraka_worker.reports import Reports
from ostraka_worker.schedule import Schedule
from ostraka_worker.sharing import Sharing

log = structlog.get_logger()


class Links(Protocol):
    """What is needed of the wire. Gateways are numbered from 0."""

    dropped_frames: int

    def __len__(self) -> int: ...

    def send(self, gateway: int, message: Message) -> bool: ...

    def receive(self, timeout_s: float) -> list[tuple[int, Message]]: ...

    def cut(self) -> list[int]: ...


class Hearing:
    def __init__(
        self, links: Links, registrations: Registrations, schedule: Schedule, sharing: Sharing, reports: Reports
    ) -> None:
        self._links = links
        self._registrations = registrations
        self._schedule = schedule
        self._sharing = sharing
        self._reports = reports
        self.is_told_to_drain = False

    def take(self, timeout_s: float) -> None:
        """Waits so long at most for something to come."""
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
                self.is_told_to_drain = True
            case _:
                log.warning("unexpected_message", kind=type(message).__name__)

    def _register_again(self, gateway: int) -> None:
        if self._registrations[gateway].renew():
            log.info("registering_again", gateway=gateway, abandoned_requests=len(self._schedule.waiting))
            self._schedule.clear(gateway)
