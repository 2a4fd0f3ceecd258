"""HTTP/1.1 and nothing else, as uvicorn's protocol reads it, where a client does something unusual that is its right.

asks for an upgrade      answered as if it had not, its body with it: nobody here speaks anything else
closes its sending side  with its request: answered, and the connection closed; later: it has given up
reads no answers         cut off (`unread_answers`)
asks to close, and sends its body on when it is refused    read on, for nobody, as one that keeps its connection is
"""

import asyncio
from typing import ClassVar

import httptools
from uvicorn._types import ASGI3Application
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from ostraka_gateway.unread_answers import UnreadAnswers
from ostraka_gateway.whole_answer import WholeAnswer

HALF_CLOSE_S = 0.1
"""Simple clients say that they have sent all, right after they have. Nobody gives up waiting so soon, and the system
tells of both alike: with one who closes his connection later, work for nobody must end."""


class PlainProtocol(HttpToolsProtocol):
    read_timeout_s: ClassVar[float]
    _unread: UnreadAnswers
    _asks_upgrade: bool = False
    _is_answered_early: bool = False
    """With an answer that is the last, before all of its request has come."""
    _arrived: float = 0.0
    _answering: RequestResponseCycle | None = None
    """The request whose task was begun last; where its client sends ahead, `cycle` is a later one."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._unread = UnreadAnswers(self.loop, transport, self.read_timeout_s)

    def connection_lost(self, exc: Exception | None) -> None:
        self._unread.stop()
        super().connection_lost(exc)
        self._tell_of_loss()
        # A request's cycle knows how to close the connection: the two would hold each other until a garbage collection.
        self.cycle = self._answering = None  # type: ignore[assignment]
        self.pipeline.clear()

    def _tell_of_loss(self) -> None:
        """Uvicorn tells the newest request alone: an earlier one would be worked on for nobody, and then be written to
        a connection that is gone."""
        if self._answering and not self._answering.response_complete:
            self._answering.disconnected = True
            self._answering.message_event.set()

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: ASGI3Application) -> None:
        self._answering = cycle
        super()._start_asgi_task(cycle, app)

    def eof_received(self) -> bool:  # type: ignore[override]
        """Whether to keep the connection, for the answer that is awaited on it."""
        is_awaited = self.is_busy and not self.cycle.more_body
        if not is_awaited or self.loop.time() - self._arrived > HALF_CLOSE_S:
            return False
        self.cycle.keep_alive = False
        return True

    def data_received(self, data: bytes) -> None:
        """Instead of uvicorn's, which forgets a body after `Upgrade`, and logs what is not HTTP: any stranger may send
        it."""
        self._unset_keepalive_if_required()
        rest = memoryview(data)
        try:
            while (read := self._feed(rest)) is not None:
                rest = rest[read:]
        except httptools.HttpParserError as bad:
            self.send_400_response(str(bad))

    def _feed(self, data: memoryview) -> int | None:
        """How much of it was read when the parser had to be begun anew; None when all was."""
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade as stopped:
            if not self._asks_upgrade:  # CONNECT, after which come another protocol's bytes
                return None
            head = self._head_without_upgrade()
            self.parser = httptools.HttpRequestParser(self)
            self.parser.set_dangerous_leniencies(lenient_data_after_close=True)  # as uvicorn's own
            self.parser.feed_data(head)
            return int(stopped.args[0])
        return None

    def _head_without_upgrade(self) -> bytes:
        method, version = self.parser.get_method(), self.parser.get_http_version().encode()
        headers = [b"%s: %s" % (name, value) for name, value in self.headers if name != b"upgrade"]
        return b"\r\n".join([b"%s %s HTTP/%s" % (method, self.url, version), *headers, b"", b""])

    def on_headers_complete(self) -> None:
        self._asks_upgrade = self.parser.should_upgrade() and self.parser.get_method() != b"CONNECT"
        if self.parser.get_http_version() == "1.0":
            self.expect_100_continue = False  # it knows of no answer before the answer
        if not self._asks_upgrade:
            super().on_headers_complete()
            if self.scope["method"] != "HEAD":
                self.cycle.transport = WholeAnswer(self.transport, self._close_answered)

    def on_message_complete(self) -> None:
        if not self._asks_upgrade:
            super().on_message_complete()
            self._arrived = self.loop.time()
            if self._is_answered_early:
                self.transport.close()

    def _close_answered(self) -> None:
        """Closed while more comes, the system would send a reset, which takes the answer from a client that sends all
        before it reads. What still comes has as long as it had anyway."""
        if self.cycle and self.cycle.response_complete and self.cycle.more_body:
            self._is_answered_early = True
            self.transport.write_eof()
        else:
            self.transport.close()

    def pause_writing(self) -> None:
        self._unread.watch()
        super().pause_writing()

    def on_response_complete(self) -> None:
        self._unread.count_answer()
        super().on_response_complete()

    @property
    def is_busy(self) -> bool:
        """With a request that is not answered yet."""
        return self.cycle is not None and not self.cycle.response_complete

    @property
    def is_arriving(self) -> bool:
        """With one of which not all is here."""
        return self.is_busy and self.cycle.more_body

    def _should_upgrade(self) -> bool:
        return False
