"""HTTP to another gateway of this server, over its private socket: just as much as our own responses need."""

import asyncio
import contextlib
from collections.abc import Mapping
from dataclasses import dataclass

HEAD_BYTES = 1 << 16


class Unreachable(Exception):
    """No whole response came: nobody listens, or whoever did has died."""


@dataclass(frozen=True, slots=True)
class Received:
    status: int
    headers: Mapping[str, str]
    body: bytes


_Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class PrivateClient:
    """`socket_path` is the other gateway's. Connections are kept, and are as many as requests at once."""

    def __init__(self, socket_path: str) -> None:
        self._socket_path = socket_path
        self._idle: list[_Connection] = []
        self._is_closed = False

    async def post(self, path: str, headers: Mapping[str, str], body: bytes) -> Received:
        """Raises Unreachable. A kept connection that has ended meanwhile is no reason to: deciding is idempotent."""
        lines = [f"POST {path} HTTP/1.1", "host: private", f"content-length: {len(body)}"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        request = "\r\n".join([*lines, "", ""]).encode("latin-1") + body
        while self._idle:
            with contextlib.suppress(Unreachable):
                return await self._exchange(self._idle.pop(), request)
        try:
            connection = await asyncio.open_unix_connection(self._socket_path, limit=HEAD_BYTES)
        except OSError as bad:
            raise Unreachable(str(bad)) from bad
        return await self._exchange(connection, request)

    def close(self) -> None:
        """No connection is kept any more. What is under way goes on, and more may be asked."""
        self._is_closed = True
        for _, writer in self._idle:
            writer.close()
        self._idle.clear()

    async def _exchange(self, connection: _Connection, request: bytes) -> Received:
        reader, writer = connection
        received = None
        try:
            writer.write(request)
            await writer.drain()
            received = await _read(reader)
        except (OSError, EOFError, ValueError, LookupError, asyncio.LimitOverrunError) as bad:
            raise Unreachable(f"{type(bad).__name__}: {bad}") from bad
        finally:  # also where whoever waits for it was cancelled: the other side sees that by the connection's end
            is_kept = received is not None and received.headers.get("connection") != "close"
            if is_kept and not self._is_closed:
                self._idle.append(connection)
            else:
                writer.close()
        return received


async def _read(reader: asyncio.StreamReader) -> Received:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    status_line, *lines = head.split("\r\n")
    pairs = (line.partition(":") for line in lines if line)
    headers = {name.strip().lower(): value.strip() for name, _, value in pairs}
    body = await reader.readexactly(int(headers["content-length"]))
    return Received(int(status_line.split(" ")[1]), headers, body)
