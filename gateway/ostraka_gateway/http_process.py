"""uvicorn's server as one of several processes on one listening socket: how it waits for its turn, accepts and leaves.

    standby ──accept──► accepting ──announce──► each answer closes its connection: the next is made elsewhere
    (a private socket)      └───────────┴──leave──► no more is accepted; each connection is given to the successor,
                            between requests, or has its last answer; idle ones are closed ──► drained

The socket itself is never shut here: what has not been accepted is for the others. Nor is its mode touched, which all
have in common: `socket.dup` would have left them waiting in `accept`.
"""

import asyncio
import contextlib
import os
import socket
from collections.abc import Iterator

import uvicorn

from ostraka_gateway.handover import Handover, Takeover
from ostraka_gateway.http_server import BoundedProtocol, LeavingState

LAST_REQUESTS_S = 1.0
"""For a client that was just going to send its next request on a connection it keeps."""
HANDOVER_S = 5.0
"""For the successor to take all connections; what is busy for longer is told to close with its answer."""
POLL_S = 0.01


class HttpProcess(uvicorn.Server):
    """`private_socket`: a path on which to listen besides; `is_standby`: at first there only."""

    def __init__(
        self,
        config: uvicorn.Config,
        listener: socket.socket,
        private_socket: str | None = None,
        *,
        is_standby: bool = False,
    ) -> None:
        super().__init__(config)
        self.server_state = self._leaving = LeavingState()
        self._listener = listener
        self._others = socket.socket(fileno=os.dup(listener.fileno()))
        self._private_socket = private_socket
        self._is_standby = is_standby
        self._takeover: Takeover | None = None

    @property
    def is_accepting(self) -> bool:
        return self.started and not self._is_standby and not self.should_exit

    @property
    def arriving_requests(self) -> int:
        """Of which not all is here, so that nothing is promised yet."""
        return sum(each.is_arriving for each in self._connections())

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Those of uvicorn raise the signal again once it has stopped; a drained gateway exits 0 instead."""
        yield

    async def run_until_drained(self) -> None:
        with self._others, self._listener:
            await self.serve()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:  # noqa: ARG002  ours is known
        await super().startup([] if self._is_standby else [self._listener])
        if self._private_socket:
            loop = asyncio.get_running_loop()
            self._takeover = Takeover(self._private_socket, self._make_protocol, _rest)
            self.servers.append(await loop.create_unix_server(self._make_protocol, self._private_socket))

    async def accept(self) -> None:
        """Idempotent."""
        if self._is_standby and not self.should_exit:
            loop = asyncio.get_running_loop()
            self.servers.append(await loop.create_server(self._make_protocol, sock=self._listener))
            self._is_standby = False

    def announce(self) -> None:
        """While it still accepts: so that no connection that is used is left open when it leaves."""
        self._leaving.is_announced = True
        for connection in self._connections():
            connection.close_after_next()

    def leave(self, successor: str | None = None) -> None:
        """`successor`: the private socket of the gateway that takes the connections. Once more: without waiting."""
        self.force_exit = self.should_exit
        if successor and not self.should_exit:
            self._leaving.handover = Handover(successor)
        self.should_exit = True
        self._stop_accepting()
        self._hand_over()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._stop_accepting()
        if self._takeover:
            self._takeover.close()
        if self._leaving.handover:
            await self._give_connections_away()
            self._leaving.handover.close()
            self._leaving.handover = None
        await self._await_last_requests()
        await super().shutdown(sockets)

    async def _give_connections_away(self) -> None:
        loop = asyncio.get_running_loop()
        ends = loop.time() + HANDOVER_S
        while self.server_state.connections and loop.time() < ends and not self.force_exit:
            self._hand_over()
            await asyncio.sleep(POLL_S)

    async def _await_last_requests(self) -> None:
        loop = asyncio.get_running_loop()
        ends = loop.time() + LAST_REQUESTS_S
        for connection in self._connections():
            connection.close_after_next()
        # By looking: whether others still accept is told to nobody.
        while self._is_awaited() and loop.time() < ends:  # noqa: ASYNC110
            await asyncio.sleep(POLL_S)

    def _is_awaited(self) -> bool:
        """A last request may still come, and its client need not look elsewhere anyway."""
        is_idle = not all(each.is_busy for each in self._connections())
        return is_idle and self._do_others_accept() and not self.force_exit

    def _do_others_accept(self) -> bool:
        """The supervisor shuts the socket when all are to leave."""
        return bool(self._others.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN))

    def _stop_accepting(self) -> None:
        for server in self.servers if self.started else ():
            server.close()

    def _hand_over(self) -> None:
        for connection in self._connections():
            connection.hand_over()

    def _connections(self) -> list[BoundedProtocol]:
        return [each for each in self.server_state.connections if isinstance(each, BoundedProtocol)]

    def _make_protocol(self) -> asyncio.Protocol:
        return self.config.http_protocol_class(  # type: ignore[call-arg]
            config=self.config, server_state=self.server_state, app_state=self.lifespan.state
        )


def _rest(taken: asyncio.Protocol) -> None:
    if isinstance(taken, BoundedProtocol):
        taken.rest()
