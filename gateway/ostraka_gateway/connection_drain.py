"""How the connections of a server that leaves come to their end: each is given to the successor, between requests, or
has its last answer; who is idle is waited for a moment."""

import asyncio
import os
import socket

from ostraka_gateway.handover import Handover
from ostraka_gateway.leaving_protocol import LeavingState

LAST_REQUESTS_S = 1.0
"""For a client that was just going to send its next request on a connection it keeps."""
JUST_CONNECTED_S = 0.1
"""For a request that is on its way on a connection that was accepted a moment ago."""
HANDOVER_S = 5.0
"""For the successor to take all connections; what is busy for longer is told to close with its answer."""
POLL_S = 0.01


class ConnectionDrain:
    """`listener`: the socket that others may accept on. `announce`, `begin` and then `run`, which `hurry` ends soon."""

    def __init__(self, state: LeavingState, listener: socket.socket) -> None:
        self._state = state
        self._others = socket.socket(fileno=os.dup(listener.fileno()))
        self._is_hurried = False

    def announce(self) -> None:
        """While the server still accepts: so that no connection is left open when it leaves. Whose request meets the
        close of one that rests has it answered on another."""
        self._state.is_announced = True
        self._close_after_next()
        asyncio.get_running_loop().call_later(LAST_REQUESTS_S, self._close_resting)

    def begin(self, successor: str | None) -> None:
        """`successor`: the private socket of the server that takes the connections."""
        if successor:
            self._state.handover = Handover(successor)
            self._hand_over()

    def hurry(self) -> None:
        self._is_hurried = True

    async def run(self) -> None:
        if self._state.handover:
            await self._give_away()
            self._state.handover.close()
            self._state.handover = None
        await self._await_last_requests()

    def close(self) -> None:
        self._others.close()

    async def _give_away(self) -> None:
        loop = asyncio.get_running_loop()
        ends = loop.time() + HANDOVER_S
        while self._state.connections and loop.time() < ends and not self._is_hurried:
            self._hand_over()
            await asyncio.sleep(POLL_S)

    async def _await_last_requests(self) -> None:
        loop = asyncio.get_running_loop()
        begun = loop.time()
        self._close_after_next()
        # By looking: whether others still accept is told to nobody.
        while self._is_awaited(loop.time() - begun):  # noqa: ASYNC110
            await asyncio.sleep(POLL_S)

    def _is_awaited(self, waited_s: float) -> bool:
        """A last request may still come. Where the supervisor has shut the socket, all are to leave, and its client
        must look elsewhere anyway; only who has just connected is waited for."""
        is_idle = not all(each.is_busy for each in self._state.protocols)
        do_others_accept = self._others.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
        patience_s = LAST_REQUESTS_S if do_others_accept else JUST_CONNECTED_S
        return is_idle and waited_s < patience_s and not self._is_hurried

    def _hand_over(self) -> None:
        for connection in self._state.protocols:
            connection.hand_over()

    def _close_resting(self) -> None:
        for connection in self._state.protocols:
            connection.close_resting()

    def _close_after_next(self) -> None:
        for connection in self._state.protocols:
            connection.close_after_next()
