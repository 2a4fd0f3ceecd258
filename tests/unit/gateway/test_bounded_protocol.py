"""uvicorn's protocol as we bound it, given packets of any size."""

import asyncio
import json
from types import SimpleNamespace

import pytest
from uvicorn.config import Config
from uvicorn.server import ServerState

from ostraka_gateway.arrival import HEAD_BYTES_MAX
from ostraka_gateway.plain_protocol import HALF_CLOSE_S
from ostraka_gateway.refusing_protocol import protocol_for
from tests.waiting import let_run, until

OVER = HEAD_BYTES_MAX * 3


class Transport:
    def __init__(self):
        self.written = b""
        self.ended = ""

    def get_extra_info(self, _, default=None):
        return default

    def write(self, sent):
        self.written += sent

    def write_eof(self):
        self.written += b"EOF"

    def close(self):
        self.ended = self.ended or "closed"

    def abort(self):
        self.ended = self.ended or "aborted"

    def is_closing(self):
        return bool(self.ended)

    def get_write_buffer_size(self):
        return 0

    def pause_reading(self):
        pass

    def resume_reading(self):
        pass


@pytest.fixture
def asked():
    return []


@pytest.fixture
async def protocol(asked):
    async def app(scope, receive, send):
        body = b""
        while (message := await receive())["type"] == "http.request":
            body += message["body"]
            if not message["more_body"]:
                break
        asked.append(f"{scope['path']} {body.decode()}".rstrip())
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"0")]})
        await send({"type": "http.response.body"})

    config = Config(app, lifespan="off", log_config=None)
    made = protocol_for(10, 100)(config, ServerState(), {}, asyncio.get_running_loop())
    made.connection_made(Transport())
    yield made
    await asyncio.gather(*made.tasks)
    if made.parser is not None:
        made.connection_lost(None)
    assert not made._arrival.is_running
    assert made._unread._next_look is None


def status_of(protocol):
    return int(protocol.transport.written.split(b" ", 2)[1])


@pytest.mark.parametrize(
    "packets",
    [
        [b"GET / HTTP/1.1\r\nx-y: " + b"z" * OVER + b"\r\n\r\n"],
        [b"GET / HTTP/1.1\r\n" + b"x-y: zzzzzzzz\r\n" * (OVER // 10) + b"\r\n"],
        [b"GET /" + b"z" * OVER + b" HTTP/1.1\r\n\r\n"],
        [b"GET / HTTP/1.1\r\nx-y: ", *[b"z" * 8192] * 9],
        [b"GET / HTTP/1.1\r\n", *[b"x-y: zzzzzzzz\r\n"] * (OVER // 10)],
    ],
    ids=["one header", "many headers", "path", "one header in pieces", "many headers in pieces"],
)
async def test_no_head_beyond_the_limit_passes(protocol, asked, packets):
    for packet in packets:
        protocol.data_received(packet)
        if protocol.transport.is_closing():
            break
    assert (status_of(protocol), protocol.transport.ended) == (431, "closed")
    told = json.loads(protocol.transport.written.partition(b"\r\n\r\n")[2])
    assert told["detail"]["error_type"] == "headers_too_large"
    assert not asked


@pytest.mark.parametrize("name", ["Host", "hOST", "Authorization"])
async def test_what_a_proxy_decides_by_may_be_there_once_only(protocol, asked, name):
    first = "" if name.lower() == "host" else "Host: a\r\n"
    once = f"GET /once HTTP/1.1\r\n{first}{name}: a\r\nAccept: x\r\nAccept: y\r\n\r\n".encode()
    protocol.data_received(once * 2)
    await asyncio.gather(*protocol.tasks)
    await until(lambda: len(asked) == 2)
    protocol.transport.written = b""
    protocol.data_received(f"GET /twice HTTP/1.1\r\n{name}: a\r\nAccept: x\r\n".encode())
    protocol.data_received(f"{name.upper()}: a\r\n\r\n".encode())
    assert (status_of(protocol), protocol.transport.ended, asked) == (400, "closed", ["/once"] * 2)
    told = json.loads(protocol.transport.written.partition(b"\r\n\r\n")[2])
    assert told["detail"]["message"] == f"a request should have one {name.lower()} header, not several"


async def test_each_request_has_the_whole_limit(protocol, asked):
    head = b"GET / HTTP/1.1\r\nhost: a\r\nx-y: " + b"z" * (HEAD_BYTES_MAX * 2 // 3) + b"\r\n\r\n"
    for _ in range(3):
        protocol.data_received(head)
        await asyncio.gather(*protocol.tasks)
    assert asked == ["/"] * 3


UPGRADE = (
    b"POST %b HTTP/1.1\r\nHost: a\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: %b\r\nContent-Length: 5\r\n\r\n"
)


@pytest.mark.parametrize("wanted", [b"h2c", b"websocket"])
@pytest.mark.parametrize("size", [1, 7, 10_000])
async def test_an_upgrade_is_answered_as_if_not_asked_for_and_not_logged(protocol, asked, caplog, wanted, size):
    """With its body, and what comes after it, in packets of that size."""
    sent = (
        UPGRADE % (b"/x", wanted)
        + b"first"
        + UPGRADE % (b"/y", wanted)
        + b"later"
        + b"GET /z HTTP/1.1\r\nhost: a\r\n\r\n"
    )
    for at in range(0, len(sent), size):
        protocol.data_received(sent[at : at + size])
    await until(lambda: len(asked) == 3 and not protocol.tasks)
    assert (asked, status_of(protocol)) == (["/x first", "/y later", "/z"], 200)
    assert not caplog.records


async def test_what_follows_connect_is_not_read(protocol, asked):
    protocol.data_received(b"CONNECT /a HTTP/1.1\r\nhost: a\r\n\r\n\x16\x03\x01")
    await asyncio.gather(*protocol.tasks)
    assert asked == ["/a"]


FIRST = b"POST /a HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nfirst"


@pytest.mark.parametrize(
    "bad",
    [
        b"\x16\x03\x01\r\n\r\n",
        b"GET / HTTP/1.1\r\nx-y: " + b"z" * OVER + b"\r\n\r\n",
        b"POST /b HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"POST /b HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\nzz\r\n",
    ],
    ids=["no request", "head too large", "body", "rest of a body"],
)
@pytest.mark.parametrize("ahead", [1, 3])
async def test_the_answer_to_a_request_is_never_the_refusal_of_the_next(protocol, asked, bad, ahead):
    protocol.data_received(FIRST * ahead + bad)
    assert protocol.flow.read_paused
    protocol.data_received(b"more of it")
    await until(lambda: protocol.transport.ended == "closed" and not protocol.tasks)
    assert asked == ["/a first"] * ahead
    assert protocol.transport.written.count(b"HTTP/1.1 ") == protocol.transport.written.count(b"HTTP/1.1 200 ") == ahead
    assert protocol.transport.written.endswith(b"connection: close\r\n\r\n")


async def test_an_old_client_is_told_nothing_before_its_answer(protocol, asked):
    head = b"POST /a HTTP/1.%d\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n"
    protocol.data_received(head % 0)
    await let_run()
    protocol.data_received(b"first")
    await until(lambda: asked and not protocol.tasks)
    assert (asked, status_of(protocol)) == (["/a first"], 200)


@pytest.mark.parametrize("sent", [b"\x16\x03\x01\r\n\r\n", FIRST + b"GARBAGE\r\n\r\n"])
async def test_what_is_not_http_is_not_logged(protocol, caplog, sent):
    for packet in sent.partition(b"GARBAGE"):
        protocol.data_received(packet)
        await asyncio.gather(*protocol.tasks)
    await asyncio.gather(*protocol.tasks)
    assert protocol.transport.ended == "closed"
    assert b"400 Bad Request" in protocol.transport.written
    assert not caplog.records


async def test_who_says_with_his_request_that_he_has_sent_all_is_answered_and_then_hung_up_on(protocol, asked):
    protocol.data_received(b"GET /x HTTP/1.1\r\nhost: a\r\n\r\n")
    assert protocol.eof_received()
    await asyncio.gather(*protocol.tasks)
    assert (asked, status_of(protocol), protocol.transport.ended) == (["/x"], 200, "closed")


@pytest.mark.parametrize("sent", [b"", b"GET /x HT", b"POST /x HTTP/1.1\r\nhost: a\r\ncontent-length: 5\r\n\r\nhi"])
async def test_who_hangs_up_before_his_request_is_there_is_let_go(protocol, sent):
    if sent:
        protocol.data_received(sent)
    assert not protocol.eof_received()
    protocol.connection_lost(None)


async def test_who_hangs_up_later_has_given_up(protocol, monkeypatch):
    protocol.data_received(b"GET /x HTTP/1.1\r\nhost: a\r\n\r\n")
    now = protocol.loop.time()
    monkeypatch.setattr(protocol, "loop", SimpleNamespace(time=lambda: now + 2 * HALF_CLOSE_S))
    assert not protocol.eof_received()


@pytest.mark.parametrize("behind", [0, 1, 3])
async def test_who_sent_ahead_and_is_gone_is_worked_for_no_longer(behind, caplog):
    begun, told = [], []

    async def app(scope, receive, send):
        begun.append(scope["path"])
        assert (await receive())["type"] == "http.request"
        told.append((await receive())["type"])
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
        await send({"type": "http.response.body", "body": b"hi"})

    config = Config(app, lifespan="off", log_config=None)
    made = protocol_for(10, 100)(config, ServerState(), {}, asyncio.get_running_loop())
    made.connection_made(Transport())
    made.data_received(FIRST + b"GET /behind HTTP/1.1\r\nhost: a\r\n\r\n" * behind)
    await let_run()
    made.connection_lost(ConnectionResetError())
    await until(lambda: not made.tasks)
    assert (begun, told, made.transport.written) == (["/a"], ["http.disconnect"], b"")
    assert not caplog.records


async def test_a_connection_that_is_to_leave_has_one_more_answer(protocol, asked):
    request = b"GET / HTTP/1.1\r\nhost: a\r\n\r\n"
    protocol.data_received(request)
    await asyncio.gather(*protocol.tasks)
    assert b"connection: close" not in protocol.transport.written
    protocol.close_after_next()
    assert not protocol.transport.ended
    protocol.data_received(request)
    await asyncio.gather(*protocol.tasks)
    assert asked == ["/"] * 2
    assert b"connection: close" in protocol.transport.written
    assert protocol.transport.ended == "closed"


async def test_an_answer_that_is_being_made_can_be_made_the_last(protocol, asked):
    protocol.data_received(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n")
    protocol.close_after_next()
    await asyncio.gather(*protocol.tasks)
    assert (asked, b"connection: close" in protocol.transport.written) == (["/"], True)


async def test_a_paused_answer_is_watched(protocol):
    assert protocol._unread._next_look is None
    protocol.pause_writing()
    assert protocol._unread._next_look is not None
    protocol.resume_writing()


@pytest.mark.parametrize(
    ("head", "status", "told"),
    [
        (b"HTTP/1.1\r\n", 400, "host header"),
        (b"HTTP/1.1\r\nHost: a, b\r\n", 400, "host header"),
        (b"HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip, chunked\r\n", 501, "chunked"),
        (b"HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n", 501, "chunked"),
        (b"HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip\r\n", 400, "end with chunked"),
        (b"HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked, chunked\r\n", 400, "Transfer-Encoding"),
        (b"HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nContent-Length: 5\r\n", 400, "Content-Length"),
        (b"HTTP/1.0\r\nTransfer-Encoding: chunked\r\n", 400, "HTTP/1.0"),
    ],
)
async def test_what_a_proxy_might_read_otherwise_is_told_so_and_no_request(protocol, asked, head, status, told):
    protocol.data_received(b"POST /x " + head + b"\r\n0\r\n\r\nGET /y HTTP/1.1\r\nhost: a\r\n\r\n")
    assert (status_of(protocol), protocol.transport.ended, asked, protocol.tasks) == (status, "closed", [], set())
    assert told in json.loads(protocol.transport.written.partition(b"\r\n\r\n")[2])["detail"]["message"]


async def test_a_trailer_is_no_header(protocol, asked):
    request = b"POST /x HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n"
    protocol.data_received(request + b"authorization: Bearer x\r\nhost: b\r\n\r\n")
    await until(lambda: asked and not protocol.tasks)
    assert (asked, status_of(protocol)) == (["/x hi"], 200)
    assert protocol.scope["headers"] == [(b"host", b"a"), (b"transfer-encoding", b"chunked")]


@pytest.fixture
async def refusing():
    """Answers without a look at the body."""

    async def app(_scope, _receive, send):
        await send({"type": "http.response.start", "status": 413, "headers": [(b"content-length", b"0")]})
        await send({"type": "http.response.body"})

    made = protocol_for(10, 100)(
        Config(app, lifespan="off", log_config=None), ServerState(), {}, asyncio.get_running_loop()
    )
    made.connection_made(Transport())
    yield made
    if made.parser is not None:
        made.connection_lost(None)


LARGE = b"POST / HTTP/1.1\r\nhost: a\r\nconnection: close\r\ncontent-length: 9\r\n\r\n"


async def test_who_asks_to_close_and_is_refused_early_may_send_all_before_it_reads(refusing):
    refusing.data_received(LARGE)
    await asyncio.gather(*refusing.tasks)
    assert refusing.transport.written.endswith(b"\r\n\r\nEOF")
    refusing.data_received(b"x" * 8)
    assert refusing.transport.ended == ""
    refusing.data_received(b"x")
    assert refusing.transport.ended == "closed"


async def test_what_goes_on_arriving_for_nobody_is_cut_off_at_the_read_timeout(refusing):
    refusing.data_received(LARGE)
    await asyncio.gather(*refusing.tasks)
    assert refusing._arrival.is_running
    refusing._on_late()
    assert refusing.transport.ended == "closed"
