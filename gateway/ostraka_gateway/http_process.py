"""uvicorn's server as one of several processes that accept on one socket, and how one of them leaves.

    SIGTERM ──► accepts no more ──► one more answer a connection, its last ──► idle ones are closed ──► drained
                                    (while others accept, LAST_REQUESTS_S at most)

The socket itself is never shut here: what has not been accepted is for the others.
"""

import asyncio
import contextlib
import socket
from collections.abc import Iterator

import uvicorn

from ostraka_gateway.http_server import BoundedProtocol

LAST_REQUESTS_S = 1.0
"""For a client that was just going to send its next request on a connection it keeps."""
POLL_S = 0.02


class HttpProcess(uvicorn.Server):
    def __init__(self, config: uvicorn.Config, listener: socket.socket) -> None:
        super().__init__(config)
        self._listener = listener
        self._others = listener.dup()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Those of uvicorn raise the signal again once it has stopped; a drained gateway exits 0 instead."""
        yield

    async def run_until_drained(self) -> None:
        with self._others:
            await self.serve(sockets=[self._listener])

    def leave(self) -> None:
        """Once more: without waiting for anyone."""
        self.force_exit = self.should_exit
        self.should_exit = True
        for server in self.servers if self.started else ():
            server.close()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        loop = asyncio.get_running_loop()
        ends = loop.time() + LAST_REQUESTS_S
        for connection in self.server_state.connections:
            if isinstance(connection, BoundedProtocol):
                connection.close_after_next()
        # By looking: whether others still accept is told to nobody.
        while self._is_awaited() and loop.time() < ends:  # noqa: ASYNC110
            await asyncio.sleep(POLL_S)
        await super().shutdown(sockets)

    def _is_awaited(self) -> bool:
        """A last request may still come, and its client need not look elsewhere anyway."""
        connections = [each for each in self.server_state.connections if isinstance(each, BoundedProtocol)]
        return self._do_others_accept() and not self.force_exit and not all(each.is_busy for each in connections)

    def _do_others_accept(self) -> bool:
        """The supervisor shuts the socket when all are to leave."""
        return bool(self._others.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN))
