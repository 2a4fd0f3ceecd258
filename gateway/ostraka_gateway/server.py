"""uvicorn's server as a gateway lives it: it may wait for its turn on a private socket, take connections, and leave.

    standby ──accept──► accepting ──leave──► leaving: connections are given to the successor, or told to close ──► ended

It knows nothing of decisions. Other processes have the listening socket open too: it is never shut down here.
"""

import asyncio
import contextlib
import socket
from collections.abc import Iterator

import uvicorn

from ostraka_gateway.handover import Handover, Takeover
from ostraka_gateway.http_server import BoundedProtocol, LeavingState

LINGER_S = 0.25
"""How long an idle connection may still bring a request, which is answered with `Connection: close`: closed under a
request that is on its way, it would fail that one."""
HANDOVER_S = 5.0
LOOK_S = 0.01


class Server(uvicorn.Server):
    """`private_socket`: a path on which to listen besides; `is_standby`: at first there only."""

    def __init__(
        self, config: uvicorn.Config, listener: socket.socket, private_socket: str | None, *, is_standby: bool
    ) -> None:
        super().__init__(config)
        self.server_state = self._leaving = LeavingState()
        self._listener = listener
        self._private_socket = private_socket
        self._is_standby = is_standby
        self._takeover: Takeover | None = None

    @property
    def is_accepting(self) -> bool:
        return self.started and not self._is_standby and not self.should_exit

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Its own handlers raise the signal again once it has stopped; a drained gateway exits 0 instead."""
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:  # noqa: ARG002  ours is known
        await super().startup([] if self._is_standby else [self._listener])
        if self._private_socket:
            loop = asyncio.get_running_loop()
            self._takeover = Takeover(self._private_socket, self._make_protocol)
            self.servers.append(await loop.create_unix_server(self._make_protocol, self._private_socket))

    async def accept(self) -> None:
        """Idempotent."""
        if self._is_standby and not self.should_exit:
            self._is_standby = False
            loop = asyncio.get_running_loop()
            self.servers.append(await loop.create_server(self._make_protocol, sock=self._listener))

    def leave(self, successor: str | None = None) -> None:
        """`successor`: the private socket of the gateway that takes the connections."""
        if successor and not self._leaving.is_leaving:
            self._leaving.handover = Handover(successor)
        self._leaving.is_leaving = self.should_exit = True
        self._stop_accepting()
        self._hand_over()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._stop_accepting()
        if self._takeover:
            self._takeover.close()
        await self._clear_connections()
        await super().shutdown(sockets)
        self._listener.close()
        if self._leaving.handover:
            self._leaving.handover.close()

    async def _clear_connections(self) -> None:
        """Until none is left, or for long enough: what is busy then is told to close with its answer."""
        loop = asyncio.get_running_loop()
        ends = loop.time() + (HANDOVER_S if self._leaving.handover else LINGER_S)
        while self.server_state.connections and not self.force_exit:
            self._hand_over()
            if loop.time() >= ends:
                return
            await asyncio.sleep(LOOK_S)

    def _stop_accepting(self) -> None:
        for server in self.servers if self.started else ():
            server.close()

    def _hand_over(self) -> None:
        for connection in list(self.server_state.connections):
            if isinstance(connection, BoundedProtocol):
                connection.hand_over()

    def _make_protocol(self) -> asyncio.Protocol:
        return self.config.http_protocol_class(  # type: ignore[call-arg]
            config=self.config, server_state=self.server_state, app_state=self.lifespan.state
        )
