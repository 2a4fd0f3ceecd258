"""The gateway's end of the supervisor's channel: it takes orders and says what has become of it."""

import asyncio
import contextlib
import socket
from collections.abc import Callable

import structlog

from ostraka_gateway.decision import Gateway
from ostraka_gateway.http_process import HttpProcess
from ostraka_gateway.orders import (
    MESSAGE_BYTES,
    Accept,
    Announce,
    Assist,
    CountBroken,
    Degraded,
    Leave,
    Order,
    Rebind,
    Report,
    decode_order,
    encode_report,
)
from ostraka_gateway.shadow import Figures
from ostraka_gateway.successor import Successor

log = structlog.get_logger()

REPORT_S = 0.1
ALIVE_S = 0.2
"""With nothing to report, that is said: a supervisor that hears nothing for 2.5 s takes us for hung."""


class Control:
    """Lives on the gateway's event loop: `start`, and `stop` once the server has ended."""

    def __init__(
        self, channel: socket.socket, gateway: Gateway, server: HttpProcess, leave: Callable[[], None]
    ) -> None:
        channel.setblocking(False)  # noqa: FBT003  the standard library's own
        self._channel = channel
        self._gateway = gateway
        self._server = server
        self._leave = leave
        self._loop = asyncio.get_running_loop()
        self._reported: Report | None = None
        self._reported_at = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._accepting: asyncio.Task[None] | None = None
        self._rebinding: asyncio.Task[None] | None = None
        self._cannot = ""

    def start(self) -> None:
        self._loop.add_reader(self._channel, self._take)
        self._report()

    def stop(self) -> None:
        self._loop.remove_reader(self._channel)
        if self._timer:
            self._timer.cancel()
        if self._gateway.successor:
            self._gateway.successor.close()
        self._channel.close()

    def _take(self) -> None:
        try:
            message = self._channel.recv(MESSAGE_BYTES)
        except BlockingIOError:
            return
        except OSError:
            message = b""
        if not message:  # the supervisor has ended, and the system is about to end us
            self._loop.remove_reader(self._channel)
            return
        try:
            self._obey(decode_order(message))
        except (ValueError, KeyError, TypeError) as bad:
            log.error("order_not_understood", detail=str(bad))

    def _obey(self, order: Order) -> None:
        match order:
            case Assist():
                self._assist(order)
            case Accept():
                self._accepting = self._loop.create_task(self._server.accept())
            case Announce():
                self._gateway.is_draining = True
                self._server.announce()
            case Leave():
                self._leave()
            case Rebind():
                self._rebinding = self._loop.create_task(self._rebind())
            case Degraded():
                self._gateway.degraded = tuple(order.reasons)
            case CountBroken():
                self._gateway.cluster.metrics.broken.inc(order.requests)

    def _assist(self, order: Assist) -> None:
        successor = self._gateway.successor
        if successor and successor.socket_path != order.to:
            successor.close()
            successor = None
        if order.to and successor is None:
            successor = Successor(order.to, self._gateway.cluster.metrics)
        self._gateway.successor = successor
        if successor:
            successor.share_passed_on = order.passed_on
            successor.share_mirrored = order.mirrored
            if not order.mirrored:
                successor.stop_mirroring()

    async def _rebind(self) -> None:
        """All that is reached by a path is there again afterwards, for those who come then. What stands in its way is
        said once: it is tried each second."""
        try:
            self._gateway.cluster.bind_again()
            await self._gateway.siblings.rebind()
            self._gateway.cluster.metrics.count_again()
        except OSError as bad:
            if self._cannot != str(bad):
                log.error("cannot_bind_again", detail=str(bad))
            self._cannot = str(bad)
        else:
            log.info("bound_again")
            self._cannot = ""

    def _report(self) -> None:
        successor = self._gateway.successor
        report = Report(
            ready_workers=len(self._gateway.cluster.roster.ready_workers()),
            is_accepting=self._server.is_accepting,
            figures=successor.figures if successor else Figures(),
            in_flight_requests=self._gateway.cluster.single_flight.in_flight_requests,
        )
        now = self._loop.time()
        if report != self._reported or now - self._reported_at >= ALIVE_S:
            with contextlib.suppress(OSError):  # what it does not take now is said again
                self._channel.send(encode_report(report))
                self._reported, self._reported_at = report, now
        self._timer = self._loop.call_later(REPORT_S, self._report)
