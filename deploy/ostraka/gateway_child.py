"""The supervisor's side of a gateway: a child like the others, that takes orders and reports."""

import contextlib
from dataclasses import dataclass, field

import structlog

from ostraka.children import ControlledChild
from ostraka_gateway.orders import MESSAGE_BYTES, Order, Report, decode_report, encode_order

log = structlog.get_logger()


@dataclass(slots=True, eq=False)
class GatewayChild(ControlledChild):
    """`heard`: when it last said something, whatever it was, or was started."""

    report: Report = field(default_factory=Report)
    is_understood: bool = True
    heard: float = 0.0
    has_reported: bool = False

    def start(self) -> None:
        ControlledChild.start(self)
        self.heard, self.has_reported = self.started, False

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
                    self.heard, self.has_reported = now, True
                    self._take(message)
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
