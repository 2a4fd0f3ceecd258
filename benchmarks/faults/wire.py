"""A client that costs next to nothing: HTTP/1.1 on kept connections, just enough of it for this server's answers.

At three times a machine's capacity, and on thousands of connections, a full client on the same cores would be what is
measured. `asking` has the real one.
"""

import asyncio
import urllib.parse
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    headers: dict[str, str]
    body: bytes


class Connection:
    """One, opened by its first request. Raises OSError or IncompleteReadError where it ends before an answer."""

    def __init__(self, url: str) -> None:
        parts = urllib.parse.urlsplit(url)
        self._host, self._port = parts.hostname or "127.0.0.1", parts.port or 80
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None

    async def ask(self, method: str, path: str, body: bytes = b"", **headers: str) -> Answer:
        if self._reader is None or self._writer is None:
            self._reader, self._writer = await asyncio.open_connection(self._host, self._port)
        lines = [f"{method} {path} HTTP/1.1", f"host: {self._host}", f"content-length: {len(body)}"]
        lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
        self._writer.write("\r\n".join([*lines, "", ""]).encode() + body)
        status, found = parse_head(await self._reader.readuntil(b"\r\n\r\n"))
        return Answer(status, found, await self._reader.readexactly(int(found.get("content-length", 0))))

    def close(self) -> None:
        if self._writer:
            self._writer.close()
        self._reader = self._writer = None


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
