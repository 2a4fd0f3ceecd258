"""The worker's end of the wire: one DEALER for each gateway, which dials it. It moves messages, whatever they mean."""

import math
import os
import signal
from collections.abc import Sequence

import structlog
import zmq
from zmq.utils.monitor import recv_monitor_message

from ostraka_shared.codec import MAX_FRAME_BYTES, decode_single, encode
from ostraka_shared.errors import WireError
from ostraka_shared.messages import Message

log = structlog.get_logger()

SIGNALS = 64
"""Read at once: each is a byte, and the first one that counts makes the next one the last."""
HIGH_WATER_MARK = 4000
"""Messages. A worker holds a few requests at a time, so this is only reached while the gateway is away: it is told of
each call for the other gateways too, 20 to 100 a second."""
FLUSH_MS = 500
"""For the last results and the BYE to leave: far more than they take where the gateway lives and reads. Where it does
not read, the worker's end waits so long for nothing."""
RECONNECT_MS = 10
RECONNECT_MAX_MS = 1000
"""ZeroMQ doubles the wait from the one to the other: a gateway that is replaced in a twentieth of a second is found a
moment later, and one that takes seconds, or minutes, within one of them, for one attempt a second."""


class GatewayLinks:
    """Gateways are known by their place in `endpoints`. `identity` names this worker and its incarnation; two live
    sockets at one gateway never share one."""

    def __init__(self, endpoints: Sequence[str], identity: str) -> None:
        self._context = zmq.Context()
        self._poller = zmq.Poller()
        self._sockets = [self._dial(identity) for _ in endpoints]
        events = zmq.Event.HANDSHAKE_SUCCEEDED | zmq.Event.DISCONNECTED
        self._monitors = [socket.get_monitor_socket(events) for socket in self._sockets]
        self._down: set[int] = set()
        self._wake_fd: int | None = None
        for each in (*self._sockets, *self._monitors):
            self._poller.register(each, zmq.POLLIN)
        for socket, endpoint in zip(self._sockets, endpoints, strict=True):
            socket.connect(endpoint)
        self._logged_reasons: set[str] = set()
        self.dropped_frames = 0

    def __len__(self) -> int:
        return len(self._sockets)

    def wake_on_signals(self) -> None:
        """To be called in the main thread. ZeroMQ goes on waiting after a signal, and what its handler has noted would
        be seen a heartbeat later."""
        self._wake_fd, told = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(told, warn_on_full_buffer=False)
        self._poller.register(self._wake_fd, zmq.POLLIN)

    def send(self, gateway: int, message: Message) -> bool:
        """False where the gateway has been away for so long that the queue is full: it no longer waits for this."""
        try:
            self._sockets[gateway].send(encode(message), zmq.NOBLOCK)
        except zmq.Again:
            return False
        return True

    def receive(self, timeout_s: float) -> list[tuple[int, Message]]:
        """Everything that has arrived, by gateway, after waiting up to `timeout_s` for a first message, a link's end
        or, after `wake_on_signals`, a signal."""
        ready = dict(self._poller.poll(max(0, math.ceil(timeout_s * 1000))))
        if not ready:
            return []
        if self._wake_fd is not None and self._wake_fd in ready:
            os.read(self._wake_fd, SIGNALS)
        return [(gateway, message) for gateway in range(len(self)) for message in self._take_from(gateway)]

    def cut(self) -> list[int]:
        """Whose connection ended since this was last asked. ZeroMQ dials again by itself and says nothing of what was
        on the way in either direction: it is lost."""
        return [gateway for gateway in range(len(self)) if self._was_cut(gateway)]

    def close(self) -> None:
        """Waits a moment for what was sent to leave, where somebody may take it."""
        self.cut()
        for gateway, (socket, monitor) in enumerate(zip(self._sockets, self._monitors, strict=True)):
            socket.disable_monitor()
            monitor.close(linger=0)  # a socket like any other: the context's end would wait for it
            socket.close(linger=0 if gateway in self._down else FLUSH_MS)
        self._context.term()
        if self._wake_fd is not None:
            os.close(self._wake_fd)
            os.close(signal.set_wakeup_fd(-1))
            self._wake_fd = None

    def _dial(self, identity: str) -> "zmq.Socket[bytes]":
        socket = self._context.socket(zmq.DEALER)
        socket.setsockopt(zmq.IDENTITY, identity.encode())
        socket.setsockopt(zmq.LINGER, 0)
        socket.setsockopt(zmq.SNDHWM, HIGH_WATER_MARK)
        socket.setsockopt(zmq.RCVHWM, HIGH_WATER_MARK)
        socket.setsockopt(zmq.MAXMSGSIZE, MAX_FRAME_BYTES)
        socket.setsockopt(zmq.RECONNECT_IVL, RECONNECT_MS)
        socket.setsockopt(zmq.RECONNECT_IVL_MAX, RECONNECT_MAX_MS)
        return socket

    def _take_from(self, gateway: int) -> list[Message]:
        messages: list[Message] = []
        while True:
            try:
                frames = self._sockets[gateway].recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                return messages
            try:
                messages.append(decode_single(frames))
            except WireError as bad:
                self._drop(bad)

    def _was_cut(self, gateway: int) -> bool:
        was_cut = False
        while self._monitors[gateway].poll(0):
            if recv_monitor_message(self._monitors[gateway])["event"] == zmq.Event.DISCONNECTED:
                self._down.add(gateway)
                was_cut = True
            else:
                self._down.discard(gateway)
        return was_cut

    def _drop(self, bad: WireError) -> None:
        """Counted each time, logged once a reason."""
        self.dropped_frames += 1
        if bad.reason not in self._logged_reasons:
            self._logged_reasons.add(bad.reason)
            log.warning("frame_dropped", reason=bad.reason, detail=str(bad))
