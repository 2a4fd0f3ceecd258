"""uvicorn's server as one of several processes on one listening socket: how it waits for its turn, accepts and leaves.

    standby ──accept──► accepting ──announce──► each answer closes its connection: the next is made elsewhere
    (a private socket)      └───────────┴──leave──► no more is accepted; each connection is given to the successor,
                            between requests, or has its last answer; idle ones are closed ──► drained

The socket itself is never shut here: what has not been accepted is for the others. Nor is its mode touched, which all
have in common: `socket.dup` would have left them waiting in `accept`.
"""

import asyncio
import contextlib
import socket
from collections.abc import Iterator

import uvicorn

from ostraka_gateway.connection_drain import ConnectionDrain
from ostraka_gateway.handover import Takeover
from ostraka_gateway.leaving_protocol import LeavingProtocol, LeavingState


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
        self.server_state = self._state = LeavingState()
        self._listener = listener
        self._drain = ConnectionDrain(self._state, listener)
        self._private_socket = private_socket
        self._is_standby = is_standby
        self._takeover: Takeover | None = None

    @property
    def is_accepting(self) -> bool:
        return self.started and not self._is_standby and not self.should_exit

    @property
    def arriving_requests(self) -> int:
        """Of which not all is here, so that nothing is promised yet."""
        return sum(each.is_arriving for each in self._state.protocols)

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Those of uvicorn raise the signal again once it has stopped; a drained gateway exits 0 instead."""
        yield

    async def run_until_drained(self) -> None:
        with self._listener, contextlib.closing(self._drain):
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
        self._drain.announce()

    def leave(self, successor: str | None = None) -> None:
        """`successor`: the private socket of the gateway that takes the connections. Once more: without waiting."""
        if self.should_exit:
            self.force_exit = True
            self._drain.hurry()
        self.should_exit = True
        self._stop_accepting()
        if not self.force_exit:
            self._drain.begin(successor)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._stop_accepting()
        if self._takeover:
            self._takeover.close()
        await self._drain.run()
        await super().shutdown(sockets)

    def _stop_accepting(self) -> None:
        for server in self.servers if self.started else ():
            server.close()

    def _make_protocol(self) -> asyncio.Protocol:
        return self.config.http_protocol_class(  # type: ignore[call-arg]
            config=self.config, server_state=self.server_state, app_state=self.lifespan.state
        )


def _rest(taken: asyncio.Protocol) -> None:
    if isinstance(taken, LeavingProtocol):
        taken.rest()
