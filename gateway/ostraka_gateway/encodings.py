"""Content encodings of request bodies, decoded piece by piece. No piece is larger than PIECE_BYTES, however small what
it was made of: who counts them decides how much is ever expanded."""

import sys
import zlib
from collections.abc import Iterator
from typing import Protocol

from ostraka_shared.errors import Unreadable, UnsupportedMediaType

if sys.version_info >= (3, 14):
    from compression.zstd import DecompressionParameter, ZstdDecompressor, ZstdError
else:
    from backports.zstd import DecompressionParameter, ZstdDecompressor, ZstdError

PIECE_BYTES = 1 << 18
ACCEPTED = "zstd, gzip, deflate, identity"

_ZSTD_WINDOW_LOG_MAX = 23
"""RFC 9659: a content encoding's window has 8 MB at most. A frame could ask for a hundred times as much memory."""
_ZLIB_WRAPPED = {"gzip": 16 + zlib.MAX_WBITS, "x-gzip": 16 + zlib.MAX_WBITS, "deflate": zlib.MAX_WBITS}


class Decoder(Protocol):
    def pieces(self, encoded: bytes) -> Iterator[bytes]:
        """What `encoded` adds. Raises Unreadable where it is damaged."""

    def check_complete(self) -> None:
        """After the last byte. Raises Unreadable where the encoded text is cut short."""


def decoder_for(content_encoding: str) -> Decoder | None:
    """None for a body sent as it is. Raises UnsupportedMediaType, also for one encoding over another."""
    name = content_encoding.strip().lower()
    if name in ("", "identity"):
        return None
    if name == "zstd":
        return _Zstd()
    if name in _ZLIB_WRAPPED:
        return _Zlib(name)
    raise UnsupportedMediaType(f"a request's body should have one encoding of {ACCEPTED}", accept_encoding=ACCEPTED)


class _Zlib:
    def __init__(self, name: str) -> None:
        self._name = name
        self._stream = zlib.decompressobj(_ZLIB_WRAPPED[name])

    def pieces(self, encoded: bytes) -> Iterator[bytes]:
        try:
            while encoded and not self._stream.eof:
                yield self._stream.decompress(encoded, PIECE_BYTES)
                encoded = self._stream.unconsumed_tail
            # A full piece may leave output behind though all input is consumed.
            while not self._stream.eof and (piece := self._stream.decompress(b"", PIECE_BYTES)):
                yield piece
        except zlib.error as bad:
            raise _damaged(self._name, bad) from None
        if encoded or self._stream.unused_data:
            raise _trailing(self._name)

    def check_complete(self) -> None:
        if not self._stream.eof:
            raise _cut_short(self._name)


class _Zstd:
    def __init__(self) -> None:
        self._stream = ZstdDecompressor(options={DecompressionParameter.window_log_max: _ZSTD_WINDOW_LOG_MAX})

    def pieces(self, encoded: bytes) -> Iterator[bytes]:
        if not encoded:
            return
        if self._stream.eof:
            raise _trailing("zstd")
        try:
            yield self._stream.decompress(encoded, PIECE_BYTES)
            while not (self._stream.eof or self._stream.needs_input):
                yield self._stream.decompress(b"", PIECE_BYTES)
        except ZstdError as bad:
            raise _damaged("zstd", bad) from None
        if self._stream.unused_data:
            raise _trailing("zstd")

    def check_complete(self) -> None:
        if not self._stream.eof:
            raise _cut_short("zstd")


def _damaged(name: str, why: Exception) -> Unreadable:
    return Unreadable(f"the body is not what its content-encoding, {name}, says: {why}")


def _cut_short(name: str) -> Unreadable:
    return Unreadable(f"the body ends before its {name} does")


def _trailing(name: str) -> Unreadable:
    """One frame, or member: a million empty ones would cost more than they say."""
    return Unreadable(f"the body goes on after the end of its {name}")
