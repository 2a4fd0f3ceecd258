"""Bodies as a server hands them over: in chunks, encoded, too large, damaged, cut short, too slow."""

import asyncio
import gzip
import random
import sys
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.requests import Request

from ostraka_gateway.body import read_body
from ostraka_gateway.encodings import PIECE_BYTES, decoder_for
from ostraka_gateway.large_bodies import LargeBodies, Room
from ostraka_shared.errors import BodyTooLarge, RequestTooSlow, Unreadable, UnsupportedMediaType
from tests.waiting import let_run

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

ENCODE = {"zstd": zstd.compress, "gzip": gzip.compress, "x-gzip": gzip.compress, "deflate": zlib.compress}
MOST = 1_000_000
BOMB_BYTES = 50_000_000


def request(*chunks, **headers):
    """`chunks` may end with "gone", the client's disconnect; a body that just stops waits for ever."""
    messages = [
        {"type": "http.disconnect"} if chunk == "gone" else {"type": "http.request", "body": chunk, "more_body": True}
        for chunk in chunks
    ]
    if headers.pop("ends", True):
        messages.append({"type": "http.request", "body": b"", "more_body": False})
    given = iter(messages)

    async def receive():
        if (message := next(given, None)) is None:
            await asyncio.get_running_loop().create_future()
        return message

    listed = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
    return Request({"type": "http", "method": "POST", "path": "/", "headers": listed}, receive)


def split(data, size):
    return [data[at : at + size] for at in range(0, len(data), size)]


async def read(*chunks, most=MOST, timeout_s=10.0, **headers):
    with Room(LargeBodies(most)) as room:
        return await read_body(request(*chunks, **headers), most, timeout_s, room)


@pytest.mark.parametrize("encoding", ["", "identity", " Identity "])
async def test_a_body_arrives_as_it_was_sent(encoding):
    headers = {"content_encoding": encoding} if encoding else {}
    assert await read(b"one ", b"two", **headers) == b"one two"
    assert await read(**headers) == b""


BODIES = [b"", b"x", b'{"state": "' + b"a" * 5000 + b'"}', random.Random(1).randbytes(70_000), b"a" * (2 * PIECE_BYTES)]


@pytest.mark.parametrize("size", [1, 1000, MOST])
@pytest.mark.parametrize("body", BODIES, ids=len)
@pytest.mark.parametrize("encoding", ENCODE)
async def test_an_encoded_body_is_decoded(encoding, body, size):
    encoded = ENCODE[encoding](body)
    assert await read(*split(encoded, max(size, len(encoded) // 2000)), content_encoding=encoding.upper()) == body


@given(st.binary(max_size=300), st.integers(1, 50), st.sampled_from(sorted(ENCODE)))
def test_how_it_is_cut_does_not_matter(body, size, encoding):
    decoder = decoder_for(encoding)
    pieces = [piece for chunk in split(ENCODE[encoding](body), size) for piece in decoder.pieces(chunk)]
    decoder.check_complete()
    assert b"".join(pieces) == body


async def test_a_length_over_the_limit_is_refused_unread():
    with pytest.raises(BodyTooLarge, match=f"at most {MOST} bytes"):
        await read(ends=False, content_length=str(MOST + 1))
    assert await read(b"x", content_length=str(MOST)) == b"x"


async def test_a_body_is_refused_when_it_passes_the_limit_whatever_its_length_said():
    with pytest.raises(BodyTooLarge):
        await read(b"x" * MOST, b"x", ends=False, content_length="5")
    assert len(await read(b"x" * MOST)) == MOST


@pytest.mark.parametrize("encoding", ENCODE)
async def test_the_limit_is_of_the_decoded_body(encoding):
    assert len(await read(ENCODE[encoding](b"x" * MOST), content_encoding=encoding)) == MOST
    with pytest.raises(BodyTooLarge):
        await read(ENCODE[encoding](b"x" * (MOST + 1)), content_encoding=encoding)


@pytest.mark.parametrize("encoding", ENCODE)
async def test_the_limit_is_of_the_encoded_body_too(encoding):
    encoded = ENCODE[encoding](random.Random(2).randbytes(2000))
    with pytest.raises(BodyTooLarge):
        await read(encoded, most=1000, content_encoding=encoding)


@pytest.fixture(scope="module", params=["zstd", "gzip", "deflate"])
def bomb(request):
    return request.param, ENCODE[request.param](bytes(BOMB_BYTES))


async def test_a_bomb_is_refused_before_it_is_expanded(bomb, monkeypatch):
    encoding, encoded = bomb
    decoded = 0
    pieces = type(decoder_for(encoding)).pieces

    def count(self, chunk):
        nonlocal decoded
        for piece in pieces(self, chunk):
            decoded += len(piece)
            yield piece

    monkeypatch.setattr(type(decoder_for(encoding)), "pieces", count)
    with pytest.raises(BodyTooLarge):
        await read(encoded, content_encoding=encoding)
    assert decoded <= MOST + PIECE_BYTES


async def test_others_get_their_turn_while_a_body_expands():
    turns = 0

    async def other():
        nonlocal turns
        while True:
            turns += 1
            await let_run(1)

    task = asyncio.create_task(other())
    await read(gzip.compress(bytes(20 * PIECE_BYTES)), most=20 * PIECE_BYTES, content_encoding="gzip")
    task.cancel()
    assert turns >= 19


async def test_a_zstd_window_beyond_the_standard_is_refused():
    options = {zstd.CompressionParameter.window_log: 27, zstd.CompressionParameter.content_size_flag: 0}
    compressor = zstd.ZstdCompressor(options=options)
    encoded = compressor.compress(b"x" * 100) + compressor.flush()
    with pytest.raises(Unreadable, match="zstd"):
        await read(encoded, content_encoding="zstd")


@pytest.mark.parametrize("encoding", ENCODE)
async def test_what_is_cut_short_is_refused(encoding):
    encoded = ENCODE[encoding](b"a body of some length")
    for length in range(len(encoded)):
        with pytest.raises(Unreadable):
            await read(encoded[:length], content_encoding=encoding)


@pytest.mark.parametrize("encoding", ENCODE)
@pytest.mark.parametrize("body", [b'{"state": "plain"}', b"\0" * 50])
async def test_what_is_not_of_its_encoding_is_refused(encoding, body):
    with pytest.raises(Unreadable, match=encoding):
        await read(body, content_encoding=encoding)


@pytest.mark.parametrize("chunks", [1, 2], ids=["in the same chunk", "in another"])
@pytest.mark.parametrize("encoding", ENCODE)
async def test_what_goes_on_after_its_end_is_refused(encoding, chunks):
    first, second = ENCODE[encoding](b"one"), ENCODE[encoding](b"two")
    with pytest.raises(Unreadable, match="goes on after the end"):
        await read(*([first + second] if chunks == 1 else [first, second]), content_encoding=encoding)


@pytest.mark.parametrize("encoding", ["br", "zstd, gzip", "gzip, gzip", "gzip, identity", "gzip;q=1", "zst"])
async def test_an_encoding_we_do_not_read_is_refused_with_those_we_do(encoding):
    with pytest.raises(UnsupportedMediaType) as caught:
        await read(b"x", content_encoding=encoding)
    assert caught.value.accept_encoding == "zstd, gzip, deflate, identity"


async def test_two_headers_are_two_encodings():
    http = request(gzip.compress(b"x"), content_encoding="gzip")
    http.scope["headers"].append((b"content-encoding", b"gzip"))
    with pytest.raises(UnsupportedMediaType):
        await read_body(http, MOST, 10.0, Room(LargeBodies(MOST)))


async def test_a_body_that_never_ends_is_given_up():
    with pytest.raises(RequestTooSlow, match=r"within 0\.01 s"):
        await read(b"x", ends=False, timeout_s=0.01)


async def test_a_client_that_goes_is_no_fault_of_ours():
    with pytest.raises(Unreadable, match="closed before the body's end"):
        await read(b"x", "gone", ends=False)
