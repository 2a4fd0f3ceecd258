"""The supervisor's side of a gateway: a child like the others, that takes orders and reports."""

import contextlib
import time
from dataclasses import dataclass, field

import structlog

from ostraka.children import ControlledChild
from ostraka.stillness import Stillness
from ostraka_gateway.orders import MESSAGE_BYTES, CountBroken, Order, Report, decode_report, encode_order

log = structlog.get_logger()


@dataclass(slots=True, eq=False)
class GatewayChild(ControlledChild):
    """`stillness`: since it last said anything, or was started. `broken_requests`: what those before it had begun when
    they ended, and nobody has been told of yet."""

    report: Report = field(default_factory=Report)
    is_understood: bool = True
    stillness: Stillness = field(default_factory=lambda: Stillness(0.0), repr=False)
    has_reported: bool = False
    broken_requests: int = 0

    def start(self) -> None:
        ControlledChild.start(self)
        self.stillness, self.has_reported = Stillness(self.started), False

    def reap(self) -> int | None:
        self.take_reports(time.monotonic())  # the last one may still be unread
        in_flight = self.report.in_flight_requests
        code = ControlledChild.reap(self)
        if code and in_flight:
            log.warning("requests_broken", child=self.name, requests=in_flight)
            self.broken_requests += in_flight
        return code

    def schedule_restart(self, *, has_been_ready: bool) -> None:
        """The time that it served counts as waited: it is back at once, unless it dies at once again."""
        ControlledChild.schedule_restart(self, has_been_ready=has_been_ready)
        if self.restart_at is not None and self.has_reported:
            now = time.monotonic()
            self.restart_at = max(now, self.restart_at - (now - self.started))

    def hang_up(self) -> None:
        ControlledChild.hang_up(self)
        self.report, self.is_understood = Report(), True

    def order(self, order: Order) -> bool:
        """False where it cannot be told: it has ended, or takes nothing."""
        try:
            return bool(self.control and self.control.send(encode_order(order)))
        except OSError:
            return False

    def take_reports(self, now: float) -> None:
        """`report` is the last one then."""
        with contextlib.suppress(OSError):  # no more
            while self.control:
                if message := self.control.recv(MESSAGE_BYTES):
                    self.stillness.heard(now)
                    self.has_reported = True
                    self._take(message)
                    if self.broken_requests and self.order(CountBroken(self.broken_requests)):
                        self.broken_requests = 0
                else:  # it is ending; an end that can be read for ever would keep its reader awake
                    self.control.close()
                    self.control = None

    def _take(self, message: bytes) -> None:
        """Of a gateway that was started from newer files than this process, not even the form is known."""
        try:
            self.report = decode_report(message)
        except (ValueError, KeyError, TypeError) as bad:
            if self.is_understood:
                log.warning("report_not_understood", child=self.name, detail=str(bad))
            self.is_understood = False
