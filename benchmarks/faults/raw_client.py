"""The least a client can do for a request that was made beforehand: a write, a read, and a look at the status.

The overload's client shares its cores with what it measures, where others are on another machine: as tasks of an event
loop it cost 0.3 ms a request, which the workers lacked.
"""

import select
import socket
import time
import urllib.parse
from collections.abc import Iterator
from typing import NamedTuple

from benchmarks.faults.wire import content_length

MOST_BYTES = 65536
END_OF_HEAD = b"\r\n\r\n"


class Ended(NamedTuple):
    """`due`: as it was given to `send`; `sent` and `ended`: instants of the performance counter."""

    due: float
    sent: float
    ended: float
    status: int


class RawClient:
    """As many connections as are needed at once; each is used again. Raises OSError where one ends before an answer."""

    def __init__(self, url: str) -> None:
        parts = urllib.parse.urlsplit(url)
        self._address = (parts.hostname or "127.0.0.1", parts.port or 80)
        self._free: list[socket.socket] = []
        self._asked: dict[int, tuple[socket.socket, float, float]] = {}
        self._begun: dict[int, bytes] = {}
        self._poll = select.epoll()

    @property
    def in_flight(self) -> int:
        return len(self._asked)

    def send(self, request: bytes, due: float) -> None:
        connection = self._free.pop() if self._free else self._connect()
        self._asked[connection.fileno()] = (connection, due, time.perf_counter())
        connection.sendall(request)

    def wait(self, timeout_s: float) -> Iterator[Ended]:
        """Whatever answers came; none where none came in that time."""
        for number, _ in self._poll.poll(timeout_s):
            if number not in self._asked:  # it has rested for so long that the server closed it
                self._forget(number)
                continue
            connection, due, sent = self._asked[number]
            received = self._begun.pop(number, b"") + connection.recv(MOST_BYTES)
            if is_whole(received):
                del self._asked[number]
                self._free.append(connection)
                yield Ended(due, sent, time.perf_counter(), int(received[9:12]))
            else:
                self._begun[number] = received

    def close(self) -> None:
        for connection in [*self._free, *(each for each, _, _ in self._asked.values())]:
            connection.close()
        self._poll.close()

    def _forget(self, number: int) -> None:
        rested = next(each for each in self._free if each.fileno() == number)
        self._free.remove(rested)
        rested.close()

    def _connect(self) -> socket.socket:
        made = socket.create_connection(self._address)
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._poll.register(made, select.EPOLLIN)
        return made


def is_whole(received: bytes) -> bool:
    """Raises ConnectionResetError for nothing, which is the end."""
    if not received:
        raise ConnectionResetError("closed before the answer")
    end = received.find(END_OF_HEAD) + len(END_OF_HEAD)
    return end >= len(END_OF_HEAD) and len(received) >= end + content_length(received[:end])
