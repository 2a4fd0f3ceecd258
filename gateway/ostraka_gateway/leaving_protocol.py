"""A connection of a server that is about to leave: its next answer is its last, or it goes on at another server."""

import asyncio

from uvicorn.server import ServerState

from ostraka_gateway.bounded_protocol import BoundedProtocol
from ostraka_gateway.handover import Handover


class LeavingState(ServerState):
    """`handover` takes the connections of a server that is leaving, where somebody takes them. `is_announced`: it will
    leave, and accepts for the time being."""

    handover: Handover | None = None
    is_announced: bool = False

    @property
    def protocols(self) -> "list[LeavingProtocol]":
        return [each for each in self.connections if isinstance(each, LeavingProtocol)]


class LeavingProtocol(BoundedProtocol):
    _is_leaving: bool = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._is_leaving = isinstance(self.server_state, LeavingState) and self.server_state.is_announced

    def on_headers_complete(self) -> None:
        super().on_headers_complete()
        if self._is_leaving and not self._asks_upgrade:
            self.cycle.keep_alive = False

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if isinstance(self.server_state, LeavingState) and self.server_state.handover:
            self.loop.call_soon(self.hand_over)  # once what was written has left

    def hand_over(self) -> None:
        """To the next server, where there is one and nothing is under way here."""
        handover = self.server_state.handover if isinstance(self.server_state, LeavingState) else None
        if handover and self._is_between_requests and handover.give(self.transport):
            self._arrival.stop()

    def rest(self) -> None:
        """Of one that was given to us: it may be silent for as long as after any answer, not as long as a new one."""
        if self._is_between_requests:
            self._arrival.stop()
            self.timeout_keep_alive_task = self.loop.call_later(
                self.timeout_keep_alive, self.timeout_keep_alive_handler
            )

    def close_after_next(self) -> None:
        """The answer that is being made, or the next, is the connection's last, and says so."""
        self._is_leaving = True
        if self.is_busy:
            self.cycle.keep_alive = False

    def close_resting(self) -> None:
        if self._is_between_requests:
            self.transport.close()

    @property
    def _is_between_requests(self) -> bool:
        is_under_way = self.is_busy or self._head.is_open or (self.cycle is not None and self.cycle.more_body)
        return not (is_under_way or self.transport.is_closing() or self.transport.get_write_buffer_size())
