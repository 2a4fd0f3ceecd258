"""A request's body, bounded while it arrives, whatever it says of its length."""

from starlette.requests import Request

from ostraka_shared.errors import BodyTooLarge

BODY_BYTES_MAX = 16 * 1024 * 1024
"""A state of 256,000 bytes and 1,024 questions of 8,000 characters, with room for JSON's own."""


async def read_body(http: Request) -> bytes:
    """Raises BodyTooLarge as soon as it is."""
    if int(http.headers.get("content-length") or 0) > BODY_BYTES_MAX:
        raise _too_large()
    body = bytearray()
    async for chunk in http.stream():
        body += chunk
        if len(body) > BODY_BYTES_MAX:
            raise _too_large()
    return bytes(body)


def _too_large() -> BodyTooLarge:
    return BodyTooLarge(f"a request's body should have at most {BODY_BYTES_MAX} bytes")
