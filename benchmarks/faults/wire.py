"""A client that costs next to nothing: HTTP/1.1 on kept connections, just enough of it for this server's answers.

On thousands of connections, a full client on the same cores would be what is measured. `asking` has the real one, and
`raw_client` one that costs still less.
"""

import asyncio
import urllib.parse
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    head: bytes
    body: bytes

    @property
    def headers(self) -> dict[str, str]:
        return parse_head(self.head)[1]


class Connection(asyncio.Protocol):
    """One, opened by its first request. Raises OSError where it ends before an answer."""

    def __init__(self, url: str) -> None:
        parts = urllib.parse.urlsplit(url)
        self._host, self._port = parts.hostname or "127.0.0.1", parts.port or 80
        self._transport: asyncio.Transport | None = None
        self._received = bytearray()
        self._answered: asyncio.Future[Answer] | None = None

    async def ask(self, method: str, path: str, body: bytes = b"", **headers: str) -> Answer:
        loop = asyncio.get_running_loop()
        if self._transport is None:
            self._transport, _ = await loop.create_connection(lambda: self, self._host, self._port)
        lines = [f"{method} {path} HTTP/1.1", f"host: {self._host}", f"content-length: {len(body)}"]
        lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
        self._answered = loop.create_future()
        self._transport.write("\r\n".join([*lines, "", ""]).encode() + body)
        return await self._answered

    def data_received(self, data: bytes) -> None:
        self._received += data
        if (end := self._received.find(b"\r\n\r\n") + 4) < 4:
            return
        head = bytes(self._received[:end])
        if len(self._received) < end + content_length(head):
            return
        body, self._received = bytes(self._received[end:]), bytearray()
        if self._answered and not self._answered.done():
            self._answered.set_result(Answer(int(head.split(b" ", 2)[1]), head, body))

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        if self._answered and not self._answered.done():
            self._answered.set_exception(exc or ConnectionResetError("closed before the answer"))

    def close(self) -> None:
        if self._transport:
            self._transport.close()
        self._transport = None


class Pool:
    """As many connections as are needed at once; each is used again."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._free: list[Connection] = []

    async def ask(self, method: str, path: str, body: bytes = b"", **headers: str) -> Answer:
        connection = self._free.pop() if self._free else Connection(self._url)
        try:
            answer = await connection.ask(method, path, body, **headers)
        except BaseException:
            connection.close()
            raise
        self._free.append(connection)
        return answer

    def close(self) -> None:
        for connection in self._free:
            connection.close()


def parse_head(head: bytes) -> tuple[int, dict[str, str]]:
    """Names in lower case."""
    first, *lines = head.decode("latin-1").rstrip("\r\n").split("\r\n")
    pairs = (line.partition(":") for line in lines)
    return int(first.split(" ", 2)[1]), {name.strip().lower(): value.strip() for name, _, value in pairs}


def content_length(head: bytes) -> int:
    """0 where it is not told."""
    _, _, rest = head.lower().partition(b"\r\ncontent-length:")
    return int(rest.partition(b"\r\n")[0] or 0)
