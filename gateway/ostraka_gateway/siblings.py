"""The gateways of one supervisor tell each other their figures, each on a socket of its own in the run directory.

Whoever connects is told, and hung up on: there is no request to read. Nobody waits for a gateway that hangs.
"""

import asyncio
import contextlib
from collections.abc import Callable, Mapping

from ostraka_gateway.figures import ClusterFigures, GatewayFigures, decode, encode, merge

ANSWER_S = 0.25
"""A gateway that reads a large body may hold its event loop for that long; a scrape, and a probe, can wait for it."""


class Siblings:
    """`path` is this gateway's own socket, `others` that of each other gateway by its name."""

    def __init__(self, path: str, others: Mapping[str, str]) -> None:
        self._path = path
        self._others = dict(others)
        self._server: asyncio.Server | None = None
        self._describe: Callable[[], GatewayFigures]

    async def start(self, describe: Callable[[], GatewayFigures]) -> None:
        """`describe()` gives this gateway's figures as they are."""
        self._describe = describe
        await self.rebind()

    async def rebind(self) -> None:
        """Also where the socket's file is gone. Raises OSError."""
        self.stop()
        self._server = await asyncio.start_unix_server(self._tell, self._path)

    async def _tell(self, _: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            writer.write(encode(self._describe()))
            await writer.drain()
        writer.close()

    def stop(self) -> None:
        if self._server:
            self._server.close()

    async def ask(self, own: GatewayFigures) -> ClusterFigures:
        """Of all gateways together. Those that do not answer in time are named."""
        answers = await asyncio.gather(*(_ask(path) for path in self._others.values()))
        silent = [name for name, answer in zip(self._others, answers, strict=True) if answer is None]
        return merge([own, *(answer for answer in answers if answer is not None)], silent)


async def _ask(path: str) -> GatewayFigures | None:
    try:
        async with asyncio.timeout(ANSWER_S):
            reader, writer = await asyncio.open_unix_connection(path)
            try:
                return decode(await reader.read(-1))
            finally:
                writer.close()
    except (OSError, TimeoutError):
        return None
