"""Responses smaller on the wire, for clients that offer it and bodies that are worth it: most answers are neither."""

import asyncio
import sys
import zlib

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

BYTES_MIN = 1024
THREAD_BYTES = 1 << 17
"""From here on in a thread: that much takes 0.3 ms of zstd, 0.9 ms of gzip."""
ZSTD_LEVEL = 1
GZIP_LEVEL = 1
"""An answer of 30 kB becomes 28 % of that in 0.08 ms of zstd (30 % in 0.13 ms at level 3), and 36 % in 0.18 ms of gzip
(32 % in 0.53 ms at level 6)."""

_GZIP_WINDOW = 16 + zlib.MAX_WBITS


def choose(accept_encoding: str) -> str | None:
    """The encoding a client likes best of ours; zstd where it likes both as much. None where it offers neither."""
    likes = dict(_quality(part) for part in accept_encoding.split(","))
    found = {name: likes.get(name, likes.get("*", 0.0)) for name in ("zstd", "gzip")}
    best = max(found, key=lambda name: found[name])
    return best if found[best] > 0 else None


def _quality(part: str) -> tuple[str, float]:
    name, _, parameter = part.partition(";")
    key, _, value = parameter.partition("=")
    if key.strip().lower() != "q":
        return name.strip().lower(), 1.0
    try:
        return name.strip().lower(), float(value)
    except ValueError:
        return name.strip().lower(), 0.0


def compress(body: bytes, encoding: str) -> bytes:
    if encoding == "zstd":
        return zstd.compress(body, ZSTD_LEVEL)
    return zlib.compress(body, GZIP_LEVEL, wbits=_GZIP_WINDOW)


class Compression:
    """Only of responses sent in one piece, which all of ours are."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        start: Message | None = None

        async def send_compressed(message: Message) -> None:
            nonlocal start
            if message["type"] == "http.response.start":
                start = message  # held back: its headers depend on the body
                return
            if start is not None:
                if len(message.get("body", b"")) >= BYTES_MIN and not message.get("more_body"):
                    await _compress(scope, start, message)
                await send(start)
                start = None
            await send(message)

        await self._app(scope, receive, send_compressed)


async def _compress(scope: Scope, start: Message, message: Message) -> None:
    headers = MutableHeaders(raw=start["headers"])
    if "content-encoding" in headers:
        return
    headers.add_vary_header("accept-encoding")
    encoding = choose(",".join(Headers(scope=scope).getlist("accept-encoding")))
    if encoding is None:
        return
    body = message["body"]
    message["body"] = (
        compress(body, encoding) if len(body) < THREAD_BYTES else await asyncio.to_thread(compress, body, encoding)
    )
    headers["content-encoding"] = encoding
    headers["content-length"] = str(len(message["body"]))
