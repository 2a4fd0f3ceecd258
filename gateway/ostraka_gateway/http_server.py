"""What uvicorn leaves open, closed: how long a request may take to arrive and an answer to be read, how much may come
before a body, how many connections there may be; and JSON for a client that does not speak HTTP."""

import asyncio
from typing import Any, ClassVar

from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import STATUS_LINE
from uvicorn.server import ServerState

from ostraka_gateway.handover import Handover
from ostraka_gateway.open_files import CROWDED_CONNECTIONS
from ostraka_gateway.plain_protocol import PlainProtocol
from ostraka_gateway.problems import from_error
from ostraka_shared.errors import HeadersTooLarge, OstrakaError, RequestTooSlow, Unreadable

HEAD_BYTES_MAX = 64 * 1024
"""Of path and headers; most servers take 8 to 64 kB."""
HEADER_MARKS = len(": \r\n")


class LeavingState(ServerState):
    """`handover` takes the connections of a server that is leaving, where somebody takes them. `is_announced`: it will
    leave, and accepts for the time being."""

    handover: Handover | None = None
    is_announced: bool = False


def protocol_for(read_timeout_s: float, connections: int) -> type[PlainProtocol]:
    """A class, because uvicorn makes one object for each connection and passes settings of its own only."""
    return type("Protocol", (BoundedProtocol,), {"read_timeout_s": read_timeout_s, "connections_max": connections})


class BoundedProtocol(PlainProtocol):
    connections_max: ClassVar[int]

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self._is_in_head = self._is_leaving = False
        self._head_bytes = self._unfinished_bytes = 0
        self._arrival: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._is_leaving = isinstance(self.server_state, LeavingState) and self.server_state.is_announced
        if len(self.connections) > self.connections_max + CROWDED_CONNECTIONS:
            transport.abort()
        elif len(self.connections) > self.connections_max:
            self.app_state = self.app_state | {"is_crowded": True}
        self._await_arrival()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_waiting()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        was_in_head = self._is_in_head
        super().data_received(data)
        if self.transport.is_closing():
            return
        if was_in_head and self._is_in_head:
            self._unfinished_bytes += len(data)
            if self._unfinished_bytes > HEAD_BYTES_MAX:
                self._refuse(headers_too_large())
        elif self._arrival is None and not self.is_busy:
            self._await_arrival()  # uvicorn's own timer stopped at the first byte, be it of nothing

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._is_in_head = True
        self._head_bytes = self._unfinished_bytes = 0
        self._await_arrival()

    def on_url(self, url: bytes) -> None:
        self._count_head(len(url))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        self._count_head(len(name) + len(value) + HEADER_MARKS)
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._is_in_head = False
        super().on_headers_complete()
        if self._is_leaving and not self._asks_upgrade:
            self.cycle.keep_alive = False

    def on_message_complete(self) -> None:
        self._stop_waiting()
        super().on_message_complete()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if isinstance(self.server_state, LeavingState) and self.server_state.handover:
            self.loop.call_soon(self.hand_over)  # once what was written has left

    def hand_over(self) -> None:
        """To the next server, where there is one and nothing is under way here."""
        handover = self.server_state.handover if isinstance(self.server_state, LeavingState) else None
        if handover and self._is_between_requests and handover.give(self.transport):
            self._stop_waiting()

    def rest(self) -> None:
        """Of one that was given to us: it may be silent for as long as after any answer, not as long as a new one."""
        if self._is_between_requests:
            self._stop_waiting()
            self.timeout_keep_alive_task = self.loop.call_later(
                self.timeout_keep_alive, self.timeout_keep_alive_handler
            )

    @property
    def _is_between_requests(self) -> bool:
        is_under_way = self.is_busy or self._is_in_head or (self.cycle is not None and self.cycle.more_body)
        return not (is_under_way or self.transport.is_closing() or self.transport.get_write_buffer_size())

    def send_400_response(self, msg: str) -> None:  # noqa: ARG002  uvicorn's, in plain text
        if self._head_bytes > HEAD_BYTES_MAX:
            self._refuse(headers_too_large())
        else:
            self._refuse(Unreadable("this is not HTTP/1.1 as this server reads it"))

    def close_after_next(self) -> None:
        """The answer that is being made, or the next, is the connection's last, and says so."""
        self._is_leaving = True
        if self.is_busy:
            self.cycle.keep_alive = False

    def _count_head(self, count: int) -> None:
        """Of what the parser has made out. Raising stops it, and `send_400_response` is called next."""
        self._head_bytes += count
        if self._head_bytes > HEAD_BYTES_MAX:
            raise headers_too_large()

    def _await_arrival(self) -> None:
        self._stop_waiting()
        self._arrival = self.loop.call_later(self.read_timeout_s, self._on_late)

    def _stop_waiting(self) -> None:
        if self._arrival is not None:
            self._arrival.cancel()
            self._arrival = None

    def _on_late(self) -> None:
        self._arrival = None
        if self.transport.is_closing():
            return
        if self.is_busy:  # `read_body` keeps the time, and tells it in the dialect's form
            self._await_arrival()
        elif self._is_in_head:
            self._refuse(RequestTooSlow(f"a request should arrive within {self.read_timeout_s:g} s"))
        else:  # nothing was sent, or what was answered already goes on arriving for nobody
            self.transport.close()

    def _refuse(self, error: OstrakaError) -> None:
        """Without the application, which knows of no request; and then the connection is closed."""
        problem = from_error(error)
        headers = problem.headers | {"content-length": str(len(problem.body)), "connection": "close"}
        listed = [f"{name}: {value}\r\n" for name, value in headers.items()]
        self.transport.write(STATUS_LINE[problem.status] + "".join([*listed, "\r\n"]).encode() + problem.body)
        self.transport.close()
        self._unread.watch()


def headers_too_large() -> HeadersTooLarge:
    return HeadersTooLarge(f"a request's path and headers should have at most {HEAD_BYTES_MAX} bytes")
