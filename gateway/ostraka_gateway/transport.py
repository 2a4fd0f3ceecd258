"""The gateway's end of the wire: one ROUTER that workers dial, on the event loop. It knows bytes and identities."""

import asyncio
import select
from collections.abc import Callable

import zmq

from ostraka_shared.codec import MAX_FRAME_BYTES, decode_single, encode
from ostraka_shared.errors import WireError
from ostraka_shared.messages import PROTOCOL_VERSION, Message

HIGH_WATER_MARK = 1000
"""Messages to one worker. Its credit keeps it far below."""
HEARTBEAT_IVL_MS = 500
HEARTBEAT_TIMEOUT_MS = 1500
"""ZMTP's own heartbeat notices a cut link on tcp; it says nothing of the inference loop. Of an ipc link the system
tells the end; a heartbeat would cut off who stands still for a moment, and what it works out would be lost."""
TURN_MESSAGES = 200
"""Messages taken before other tasks of the event loop get their turn."""


class WorkerSocket:
    """`on_message(identity, message)` and `on_garbage(identity, error)` are called on the event loop."""

    def __init__(
        self, on_message: Callable[[bytes, Message], None], on_garbage: Callable[[bytes, WireError], None]
    ) -> None:
        self._on_message = on_message
        self._on_garbage = on_garbage
        self._context = zmq.Context()
        self._socket = self._context.socket(zmq.ROUTER)
        self._socket.setsockopt(zmq.ROUTER_MANDATORY, 1)
        self._socket.setsockopt(zmq.LINGER, 0)
        self._socket.setsockopt(zmq.SNDHWM, HIGH_WATER_MARK)
        self._socket.setsockopt(zmq.RCVHWM, HIGH_WATER_MARK)
        self._socket.setsockopt(zmq.MAXMSGSIZE, MAX_FRAME_BYTES)
        self._arrivals = select.poll()
        self._arrivals.register(self._socket.FD, select.POLLIN)
        self._has_spoken = False
        self._loop: asyncio.AbstractEventLoop

    def bind(self, endpoint: str) -> None:
        """Raises OSError."""
        self._loop = asyncio.get_running_loop()
        if not endpoint.startswith("ipc://"):
            self._socket.setsockopt(zmq.HEARTBEAT_IVL, HEARTBEAT_IVL_MS)
            self._socket.setsockopt(zmq.HEARTBEAT_TIMEOUT, HEARTBEAT_TIMEOUT_MS)
        self.bind_again(endpoint)
        self._loop.add_reader(self._socket.FD, self.take_arrived)

    def bind_again(self, endpoint: str) -> None:
        """Where the socket's file is gone. ZeroMQ keeps the links that were made on it, as long as it is not told to
        unbind it. Raises OSError."""
        try:
            self._socket.bind(endpoint)
        except zmq.ZMQError as bad:
            raise OSError(bad.errno, f"{endpoint}: {bad.strerror}") from bad

    def send(self, identity: bytes, message: Message, version: int = PROTOCOL_VERSION) -> bool:
        """False if the worker cannot be reached: its link is gone, or full because it takes nothing."""
        try:
            self._socket.send_multipart((identity, encode(message, version)), zmq.NOBLOCK)
        except zmq.ZMQError:
            return False
        finally:
            # The descriptor is edge-triggered: sending may use up the signal that something has arrived.
            if self._has_arrived():
                self._loop.call_soon(self.take_arrived)
        return True

    def take_arrived(self) -> None:
        """Everything that is here, up to a turn's worth."""
        for _ in range(TURN_MESSAGES):
            if not self._has_arrived():
                return
            self._take(self._socket.recv_multipart(zmq.NOBLOCK))
            self._has_spoken = True
            self._loop.call_soon(self._forget_spoken)  # after those whom it woke
        self._loop.call_soon(self.take_arrived)

    def _forget_spoken(self) -> None:
        self._has_spoken = False

    def await_message(self, timeout_s: float) -> None:
        """Holds the event loop until something may have arrived, which is taken next; or so long at most. Not at all
        while somebody whom a message woke has not had his turn."""
        if self._has_spoken:
            return
        if self._has_arrived():
            self._loop.call_soon(self.take_arrived)  # asking has used up the signal
        else:
            self._arrivals.poll(timeout_s * 1000)

    def _has_arrived(self) -> bool:
        """Asked first, since receiving in vain costs an exception. False once closed."""
        return not self._socket.closed and bool(int(self._socket.get(zmq.EVENTS)) & zmq.POLLIN)

    def close(self) -> None:
        self._loop.remove_reader(self._socket.FD)
        self._socket.close(linger=0)
        self._context.term()

    def _take(self, frames: list[bytes]) -> None:
        identity, *payload = frames
        try:
            message = decode_single(payload)
        except WireError as bad:
            self._on_garbage(identity, bad)
        else:
            self._on_message(identity, message)
