"""Connections that the kernel has made and no gateway has taken yet: shutting the socket would reset them, with the
requests they carry."""

import socket
import struct
import time

WAIT_S = 0.1
POLL_S = 0.001
_UNACKED = 24
"""Where `tcpi_unacked` is in Linux's `struct tcp_info`; of a listening socket it is the length of the accept queue."""


def await_empty(listener: socket.socket) -> None:
    """While gateways still accept; for WAIT_S at most."""
    ends = time.monotonic() + WAIT_S
    while count_waiting(listener) and time.monotonic() < ends:
        time.sleep(POLL_S)


def count_waiting(listener: socket.socket) -> int:
    """0 too where the system does not say."""
    try:
        info = listener.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _UNACKED + 4)
    except OSError:
        return 0
    return int(struct.unpack_from("=I", info, _UNACKED)[0]) if len(info) >= _UNACKED + 4 else 0
