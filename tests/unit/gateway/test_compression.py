import gzip
import sys

import pytest

from ostraka_gateway.compression import BYTES_MIN, THREAD_BYTES, Compression, choose

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

DECODE = {"gzip": gzip.decompress, "zstd": zstd.decompress}


@pytest.mark.parametrize(
    ("offered", "chosen"),
    [
        ("", None),
        ("identity", None),
        ("br", None),
        ("gzip", "gzip"),
        ("GZIP", "gzip"),
        ("zstd", "zstd"),
        ("gzip, deflate, br, zstd", "zstd"),
        ("gzip, zstd;q=0.9", "gzip"),
        ("gzip;q=0.5 , zstd;q=0.6", "zstd"),
        ("gzip;q=0", None),
        ("gzip; q=0.000, zstd; q=0", None),
        ("*", "zstd"),
        ("*;q=0", None),
        ("zstd;q=0, *", "gzip"),
        ("gzip, *;q=0", "gzip"),
        ("gzip;q=high", None),
        ("gzip;x=y", "gzip"),
        ("notgzip", None),
        (",,;q=1,", None),
    ],
)
def test_the_client_s_wish_is_followed(offered, chosen):
    assert choose(offered) == chosen


async def answer(body, offered="gzip", headers=(), **message):
    """(headers, body) as they go out."""
    sent = []

    async def app(scope, receive, send):
        listed = [(b"content-length", str(len(body)).encode()), (b"server-timing", b"total;dur=1"), *headers]
        await send({"type": "http.response.start", "status": 200, "headers": listed})
        await send({"type": "http.response.body", "body": body, **message})
        if message.get("more_body"):
            await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def send(message):
        sent.append(message)

    await Compression(app)({"type": "http", "headers": [(b"accept-encoding", offered.encode())]}, None, send)
    assert [message["type"] for message in sent[:2]] == ["http.response.start", "http.response.body"]
    return {n.decode(): v.decode() for n, v in sent[0]["headers"]}, sent[1]["body"]


@pytest.mark.parametrize("size", [BYTES_MIN, 10_000, THREAD_BYTES])
@pytest.mark.parametrize("encoding", DECODE)
async def test_a_large_body_is_compressed(encoding, size):
    headers, body = await answer(b"x" * size, encoding)
    assert DECODE[encoding](body) == b"x" * size
    assert headers["content-encoding"] == encoding
    assert headers["content-length"] == str(len(body))
    assert headers["vary"] == "accept-encoding"
    assert headers["server-timing"] == "total;dur=1"


async def test_a_small_one_is_not():
    headers, body = await answer(b"x" * (BYTES_MIN - 1))
    assert body == b"x" * (BYTES_MIN - 1)
    assert set(headers) == {"content-length", "server-timing"}


async def test_what_was_not_offered_is_not_sent_but_may_be_another_time():
    headers, body = await answer(b"x" * BYTES_MIN, "br, gzip;q=0")
    assert body == b"x" * BYTES_MIN
    assert headers == {"content-length": str(BYTES_MIN), "server-timing": "total;dur=1", "vary": "accept-encoding"}


async def test_what_is_encoded_already_or_comes_in_pieces_is_left_alone():
    headers, body = await answer(b"x" * BYTES_MIN, headers=[(b"content-encoding", b"br")])
    assert (headers["content-encoding"], body) == ("br", b"x" * BYTES_MIN)
    headers, body = await answer(b"x" * BYTES_MIN, more_body=True)
    assert ("content-encoding" in headers, body) == (False, b"x" * BYTES_MIN)


async def test_a_failure_before_the_body_leaves_the_answer_to_others():
    async def app(scope, receive, send):
        await send({"type": "http.response.start", "status": 200, "headers": []})
        raise RuntimeError("too soon")

    sent = []
    with pytest.raises(RuntimeError, match="too soon"):
        await Compression(app)({"type": "http", "headers": []}, None, sent.append)
    assert sent == []
