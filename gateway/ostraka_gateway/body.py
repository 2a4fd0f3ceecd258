"""A request's body, bounded while it arrives, whatever it says of its length; decoded on the way, bounded again."""

import asyncio

from starlette.requests import ClientDisconnect, Request

from ostraka_gateway.encodings import Decoder, decoder_for
from ostraka_gateway.large_bodies import LARGE_BODY_BYTES, Room
from ostraka_shared.errors import BodyTooLarge, Overloaded, RequestTooSlow, Unreadable


async def read_body(http: Request, most_bytes: int, timeout_s: float, room: Room) -> bytes:
    """Raises BodyTooLarge as soon as it is, RequestTooSlow, UnsupportedMediaType or Unreadable; Overloaded where there
    was no room for a large one within the same time."""
    expected_bytes = int(http.headers.get("content-length") or 0)
    if expected_bytes > most_bytes:
        raise _too_large(most_bytes)
    decoder = decoder_for(",".join(http.headers.getlist("content-encoding")))
    try:
        if expected_bytes > LARGE_BODY_BYTES:
            async with asyncio.timeout(timeout_s):
                await room.take(expected_bytes, expected_bytes if decoder is None else most_bytes)
        async with asyncio.timeout(timeout_s):
            return await _read(http, most_bytes, decoder, room)
    except TimeoutError:
        if room.is_waiting:
            raise Overloaded("too many large bodies arrive at once", timeout_s) from None
        raise RequestTooSlow(f"the request's body should arrive within {timeout_s:g} s") from None
    except ClientDisconnect:  # nobody reads the answer, but it is counted
        raise Unreadable("the connection was closed before the body's end") from None


async def _read(http: Request, most_bytes: int, decoder: Decoder | None, room: Room) -> bytes:
    received, body = 0, bytearray()
    async for chunk in http.stream():
        received += len(chunk)
        if received > most_bytes:
            raise _too_large(most_bytes)
        await room.take(received, most_bytes)
        if decoder is None:
            body += chunk
            continue
        for number, piece in enumerate(decoder.pieces(chunk)):
            body += piece
            if len(body) > most_bytes:
                raise _too_large(most_bytes)
            await room.take(len(body), most_bytes)
            if number:  # a few bytes can make many pieces: others get their turn in between
                await asyncio.sleep(0)
    if decoder is not None:
        decoder.check_complete()
    return bytes(body)


def _too_large(most_bytes: int) -> BodyTooLarge:
    return BodyTooLarge(f"a request's body should have at most {most_bytes} bytes, decoded ones too")
