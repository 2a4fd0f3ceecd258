"""The worker's end of the wire: one DEALER that dials the gateway. It moves messages, whatever they mean."""

import math

import structlog
import zmq

from ostraka_shared.codec import MAX_FRAME_BYTES, decode, encode
from ostraka_shared.errors import WireError
from ostraka_shared.messages import Message

log = structlog.get_logger()

HIGH_WATER_MARK = 1000
"""Messages. A worker holds a few requests at a time, so this is only reached while the gateway is away."""
FLUSH_MS = 500
RECONNECT_MS = 100
RECONNECT_MAX_MS = 1000


class GatewayLink:
    """`identity` names this worker and its incarnation; two live sockets never share one."""

    def __init__(self, endpoint: str, identity: str) -> None:
        self._context = zmq.Context()
        self._socket = self._context.socket(zmq.DEALER)
        self._socket.setsockopt(zmq.IDENTITY, identity.encode())
        self._socket.setsockopt(zmq.LINGER, 0)
        self._socket.setsockopt(zmq.SNDHWM, HIGH_WATER_MARK)
        self._socket.setsockopt(zmq.RCVHWM, HIGH_WATER_MARK)
        self._socket.setsockopt(zmq.MAXMSGSIZE, MAX_FRAME_BYTES)
        self._socket.setsockopt(zmq.RECONNECT_IVL, RECONNECT_MS)
        self._socket.setsockopt(zmq.RECONNECT_IVL_MAX, RECONNECT_MAX_MS)
        self._monitor = self._socket.get_monitor_socket(zmq.Event.DISCONNECTED)
        self._poller = zmq.Poller()
        for each in (self._socket, self._monitor):
            self._poller.register(each, zmq.POLLIN)
        self._socket.connect(endpoint)
        self._logged_reasons: set[str] = set()
        self.dropped_frames = 0

    def send(self, message: Message) -> bool:
        """False where the gateway has been away for so long that the queue is full: it no longer waits for this."""
        try:
            self._socket.send(encode(message), zmq.NOBLOCK)
        except zmq.Again:
            return False
        return True

    def receive(self, timeout_s: float) -> list[Message]:
        """Everything that has arrived, after waiting up to `timeout_s` for a first message, or for the link's end."""
        if not self._poller.poll(max(0, math.ceil(timeout_s * 1000))):
            return []
        messages: list[Message] = []
        while True:
            try:
                frames = self._socket.recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                return messages
            try:
                messages.append(_decode_single(frames))
            except WireError as bad:
                self._drop(bad)

    def was_cut(self) -> bool:
        """Whether the connection ended since this was last asked. ZeroMQ dials again by itself and says nothing of
        what was on the way in either direction: it is lost."""
        was_cut = False
        while self._monitor.poll(0):
            self._monitor.recv_multipart()
            was_cut = True
        return was_cut

    def _drop(self, bad: WireError) -> None:
        """Counted each time, logged once a reason."""
        self.dropped_frames += 1
        if bad.reason not in self._logged_reasons:
            self._logged_reasons.add(bad.reason)
            log.warning("frame_dropped", reason=bad.reason, detail=str(bad))

    def close(self) -> None:
        """Waits a moment for what was sent to leave; where nobody is left to take it, that is the price of leaving."""
        self._socket.disable_monitor()
        self._monitor.close(linger=0)  # a socket like any other: the context's end would wait for it
        self._socket.close(linger=FLUSH_MS)
        self._context.term()


def _decode_single(frames: list[bytes]) -> Message:
    if len(frames) != 1:
        raise WireError("garbage", f"a message of {len(frames)} frames")
    return decode(frames[0])
