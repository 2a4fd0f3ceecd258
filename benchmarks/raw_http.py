"""As little of a client as measures a server beside it: kept connections, bodies made beforehand, arrivals in time."""

import asyncio
import random
from contextlib import suppress
from dataclasses import dataclass, field
from urllib.parse import urlsplit


def post(url: str, body: bytes, path: str = "/v1/systemone", **headers: str) -> bytes:
    """The whole request."""
    lines = [f"POST {path} HTTP/1.1", f"Host: {urlsplit(url).netloc}", f"Content-Length: {len(body)}"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return "\r\n".join([*lines, "", ""]).encode() + body


class Connection:
    def __init__(self, url: str) -> None:
        self._url = urlsplit(url)
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def ask(self, request: bytes) -> int:
        """The answer's status. A connection that the server closed is opened anew the next time."""
        if self._streams is None:
            self._streams = await asyncio.open_connection(self._url.hostname, self._url.port)
        reader, writer = self._streams
        writer.write(request)
        head = (await reader.readuntil(b"\r\n\r\n")).lower()
        length = int(head.split(b"content-length: ")[1].split(b"\r\n")[0])
        await reader.readexactly(length)
        if b"connection: close" in head:
            self.close()
        return int(head.split(b" ", 2)[1])

    async def drip(self, beginning: bytes, every_s: float) -> None:
        """Sends that, and then a byte at a time until the server has had enough of it."""
        reader, writer = await asyncio.open_connection(self._url.hostname, self._url.port)
        writer.write(beginning)
        with suppress(asyncio.IncompleteReadError):
            while True:
                writer.write(b"x")
                with suppress(TimeoutError):
                    await asyncio.wait_for(reader.readexactly(1), every_s)
                    break
        writer.close()

    def close(self) -> None:
        if self._streams:
            self._streams[1].close()
        self._streams = None


@dataclass(slots=True)
class Arrivals:
    """Latencies in seconds, each from the instant its request was due; of refused ones only their number."""

    latencies_s: list[float] = field(default_factory=list)
    refused: int = 0


async def arrive(url: str, requests: list[bytes], per_s: float, seed: int) -> Arrivals:
    """An open loop, with Poisson arrivals."""
    loop, rng, free = asyncio.get_running_loop(), random.Random(seed), list[Connection]()
    found = Arrivals()

    async def ask(request: bytes, due: float) -> None:
        connection = free.pop() if free else Connection(url)
        if await connection.ask(request) == 200:
            found.latencies_s.append(loop.time() - due)
        else:
            found.refused += 1
        free.append(connection)

    due = loop.time()
    async with asyncio.TaskGroup() as tasks:
        for request in requests:
            due += rng.expovariate(per_s)
            await asyncio.sleep(max(0.0, due - loop.time()))
            tasks.create_task(ask(request, due))
    for connection in free:
        connection.close()
    return found
