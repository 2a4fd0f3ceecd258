"""A request's body, bounded while it arrives, whatever it says of its length; decoded on the way, bounded again."""

import asyncio

from starlette.requests import ClientDisconnect, Request

from ostraka_gateway.encodings import decoder_for
from ostraka_shared.errors import BodyTooLarge, RequestTooSlow, Unreadable


async def read_body(http: Request, most_bytes: int, timeout_s: float) -> bytes:
    """Raises BodyTooLarge as soon as it is, RequestTooSlow, UnsupportedMediaType or Unreadable."""
    if int(http.headers.get("content-length") or 0) > most_bytes:
        raise _too_large(most_bytes)
    try:
        async with asyncio.timeout(timeout_s):
            return await _read(http, most_bytes)
    except TimeoutError:
        raise RequestTooSlow(f"the request's body should arrive within {timeout_s:g} s") from None
    except ClientDisconnect:  # nobody reads the answer, but it is counted
        raise Unreadable("the connection was closed before the body's end") from None


async def _read(http: Request, most_bytes: int) -> bytes:
    decoder = decoder_for(",".join(http.headers.getlist("content-encoding")))
    received, body = 0, bytearray()
    async for chunk in http.stream():
        received += len(chunk)
        if received > most_bytes:
            raise _too_large(most_bytes)
        if decoder is None:
            body += chunk
            continue
        for number, piece in enumerate(decoder.pieces(chunk)):
            body += piece
            if len(body) > most_bytes:
                raise _too_large(most_bytes)
            if number:  # a few bytes can make many pieces: others get their turn in between
                await asyncio.sleep(0)
    if decoder is not None:
        decoder.check_complete()
    return bytes(body)


def _too_large(most_bytes: int) -> BodyTooLarge:
    return BodyTooLarge(f"a request's body should have at most {most_bytes} bytes, decoded ones too")
