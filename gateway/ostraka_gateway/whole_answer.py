"""An answer's head and body in one piece to the system: two are two calls here, and wake the client up twice."""

import asyncio
from collections.abc import Callable

INFORMATIONAL = b"HTTP/1.1 1"
"""Says `go on` before any answer."""


class WholeAnswer(asyncio.Transport):
    """One answer's: what is written first is its head, which waits for the beginning of the body. Only for answers
    whose body is written, be it empty. No more of a transport than uvicorn's cycle uses. `close`: the connection."""

    def __init__(self, transport: asyncio.Transport, close: Callable[[], None]) -> None:
        super().__init__()
        self._close = close
        self._transport = transport
        self._head: bytes | None = None
        self._is_begun = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if self._is_begun or data[: len(INFORMATIONAL)] == INFORMATIONAL:
            self._transport.write(data)
        elif self._head is None:
            self._head = bytes(data)
        else:
            self._is_begun = True
            self._transport.write(self._head + data)

    def is_closing(self) -> bool:
        return self._transport.is_closing()

    def close(self) -> None:
        """A head without a body is an answer that failed half-way: nothing of it is told."""
        self._close()
