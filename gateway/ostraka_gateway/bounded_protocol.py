"""What uvicorn leaves open, closed: how long a request may take to arrive and an answer to be read, how much may come
before a body, how many connections there may be; and JSON for a client that does not speak HTTP."""

import asyncio
from typing import Any, ClassVar

from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, RequestResponseCycle
from uvicorn.server import ServerState

from ostraka_gateway.arrival import ArrivalTimer, RequestHead, headers_too_large
from ostraka_gateway.open_files import CROWDED_CONNECTIONS
from ostraka_gateway.plain_protocol import PlainProtocol
from ostraka_gateway.problems import from_error
from ostraka_shared.errors import OstrakaError, RequestTooSlow


class BoundedProtocol(PlainProtocol):
    connections_max: ClassVar[int]
    _earlier: RequestResponseCycle | None = None
    """What was not answered when the head of `cycle` had come: its client sends ahead."""

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self._head = RequestHead()
        self._arrival = ArrivalTimer(self.loop, self.read_timeout_s)

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if len(self.connections) > self.connections_max + CROWDED_CONNECTIONS:
            transport.abort()
        elif len(self.connections) > self.connections_max:
            self.app_state = self.app_state | {"is_crowded": True}
        self._arrival.begin(self._on_late)

    def connection_lost(self, exc: Exception | None) -> None:
        self._arrival.stop()
        super().connection_lost(exc)
        self._earlier = None

    def data_received(self, data: bytes) -> None:
        was_in_head = self._head.is_open
        super().data_received(data)
        if self.transport.is_closing():
            return
        if was_in_head and self._head.is_open:
            self._head.count_unfinished(len(data))
            if self._head.is_too_large:
                self._refuse(headers_too_large())
        elif not self._arrival.is_running and not self.is_busy:
            self._arrival.begin(self._on_late)  # uvicorn's own timer stopped at the first byte, be it of nothing

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._head.begin()
        self._arrival.begin(self._on_late)

    def on_url(self, url: bytes) -> None:
        self._head.count(len(url))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self._head.is_open:  # a trailer: whoever looked at the head, in front of us, has not seen it
            self._head.count_header_bytes(name, value)
            return
        self._head.count_header(name, value)
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._head.end(self.parser.get_http_version())
        earlier = self.cycle if self.is_busy else None
        super().on_headers_complete()
        if self.cycle is not earlier:
            self._earlier = earlier

    def on_message_complete(self) -> None:
        self._arrival.stop()
        super().on_message_complete()

    def send_400_response(self, msg: str) -> None:
        """Uvicorn's is in plain text."""
        self._refuse(self._head.fault(msg))

    def _on_late(self) -> None:
        if self.transport.is_closing():
            return
        if self.is_busy:  # `read_body` keeps the time, and tells it in the dialect's form
            self._arrival.begin(self._on_late)
        elif self._head.is_open:
            self._refuse(RequestTooSlow(f"a request should arrive within {self.read_timeout_s:g} s"))
        else:  # nothing was sent, or what was answered already goes on arriving for nobody
            self.transport.close()

    def _last_awaited(self) -> RequestResponseCycle | None:
        """The last request that is here whole and not answered. One behind it that will never be whole is forgotten."""
        if self.is_arriving and self._earlier and not self._earlier.response_complete:
            self.pipeline.popleft()
            self.cycle, self._earlier = self._earlier, None
        return self.cycle if self.is_busy and not self.is_arriving else None

    def _refuse(self, error: OstrakaError) -> None:
        """Without the application, which knows of no request; and then the connection is closed. A client takes the
        first answer for the first of its requests: if one is still being answered, that is told, and then closed."""
        if last := self._last_awaited():
            last.keep_alive = False
            self.flow.pause_reading()  # whatever still comes is for nobody
            return
        problem = from_error(error)
        headers = problem.headers | {"content-length": str(len(problem.body)), "connection": "close"}
        listed = [f"{name}: {value}\r\n" for name, value in headers.items()]
        self.transport.write(STATUS_LINE[problem.status] + "".join([*listed, "\r\n"]).encode() + problem.body)
        self.transport.close()
        self._unread.watch()
