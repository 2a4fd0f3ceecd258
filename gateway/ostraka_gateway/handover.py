"""Connections on their way from one gateway process to the next: between two requests they are given away, open as they
are, so that no client meets a closed one. What has arrived meanwhile waits in the kernel for the next reader.
"""

import asyncio
import contextlib
import os
import socket
from collections.abc import Callable
from functools import partial

HANDED = b"connection"
SUFFIX = ".connections"
"""Beside the private socket's own path."""
ROOM_S = 0.05
"""How often it is looked whether another file may be opened, once none may."""


class Handover:
    """The giving end. `give` is False where the other side takes no more just now, or ever."""

    def __init__(self, private_socket: str) -> None:
        self._channel = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._channel.setblocking(False)  # noqa: FBT003  the standard library's own
        with contextlib.suppress(OSError):  # nobody there: each `give` says so
            self._channel.connect(private_socket + SUFFIX)

    def give(self, transport: asyncio.Transport) -> bool:
        """Of a connection on which nothing is being read or written."""
        try:
            transport.pause_reading()
            socket.send_fds(self._channel, [HANDED], [transport.get_extra_info("socket").fileno()])
        except OSError:
            transport.resume_reading()
            return False
        transport.abort()  # our end of it; the connection lives on in the other process
        return True

    def close(self) -> None:
        self._channel.close()


class Takeover:
    """The taking end: each connection given to us becomes one of ours. `on_taken` is told of each."""

    def __init__(
        self,
        private_socket: str,
        make_protocol: Callable[[], asyncio.Protocol],
        on_taken: Callable[[asyncio.Protocol], None],
    ) -> None:
        self._make_protocol = make_protocol
        self._on_taken = on_taken
        self._loop = asyncio.get_running_loop()
        self._path = private_socket + SUFFIX
        self._door = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._door.setblocking(False)  # noqa: FBT003
        self._door.bind(self._path)
        self._door.listen()
        self._givers: set[socket.socket] = set()
        self._adopting: set[asyncio.Task[None]] = set()
        self._loop.add_reader(self._door, self._meet)

    def close(self) -> None:
        """What is on its way still comes in."""
        for giver in list(self._givers):
            self._take(giver)
        for each in (self._door, *self._givers):
            self._loop.remove_reader(each)
            each.close()
        self._givers.clear()
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self._path)  # noqa: PTH108

    def _has_room_for(self, reader: socket.socket, read: Callable[[], None]) -> bool:
        """Where no more files may be open, a connection that is taken all the same is closed by the system, and nobody
        told. It is left where it is, and `read` called again a little later."""
        with contextlib.suppress(OSError):
            os.close(os.dup(self._door.fileno()))
            return True
        self._loop.remove_reader(reader)
        self._loop.call_later(ROOM_S, self._read_again, reader, read)
        return False

    def _read_again(self, reader: socket.socket, read: Callable[[], None]) -> None:
        if reader.fileno() >= 0:  # not closed meanwhile
            self._loop.add_reader(reader, read)

    def _meet(self) -> None:
        if not self._has_room_for(self._door, self._meet):
            return
        with contextlib.suppress(OSError):
            giver, _ = self._door.accept()
            giver.setblocking(False)  # noqa: FBT003
            self._givers.add(giver)
            self._loop.add_reader(giver, partial(self._take, giver))

    def _take(self, giver: socket.socket) -> None:
        while self._has_room_for(giver, partial(self._take, giver)):
            try:
                message, descriptors, _, _ = socket.recv_fds(giver, len(HANDED), 1)
            except OSError:
                return
            if not message:
                self._loop.remove_reader(giver)
                self._givers.discard(giver)
                giver.close()
                return
            for descriptor in descriptors:
                task = self._loop.create_task(self._adopt(socket.socket(fileno=descriptor)))
                self._adopting.add(task)
                task.add_done_callback(self._adopting.discard)

    async def _adopt(self, connection: socket.socket) -> None:
        connection.setblocking(False)  # noqa: FBT003
        with contextlib.suppress(OSError):  # it has ended by now
            _, protocol = await self._loop.connect_accepted_socket(self._make_protocol, connection)
            self._on_taken(protocol)
