"""Two servers on one socket, as two gateway processes are: how one of them waits, begins, and gives its connections away."""

import asyncio
import contextlib
import os
import resource
import socket
from pathlib import Path

import pytest
import uvicorn

from ostraka_gateway import connection_drain
from ostraka_gateway.handover import HANDED, Handover, Takeover
from ostraka_gateway.private_client import PrivateClient, Unreachable
from ostraka_gateway.refusing_protocol import protocol_for
from tests.unit.gateway.prompt_process import PromptProcess
from tests.waiting import until

REQUEST = b"POST /x HTTP/1.1\r\nhost: x\r\ncontent-length: 2\r\n\r\nhi"


class Running:
    """`name` is what it answers; a request to /slow is answered once `released`."""

    def __init__(self, name, listener, private_socket=None, *, is_standby=False):
        self.name = name
        self.released = asyncio.Event()
        self.asked = asyncio.Event()
        config = uvicorn.Config(
            self._app,
            interface="asgi3",
            http=protocol_for(10, 100),
            lifespan="off",
            log_config=None,
            timeout_graceful_shutdown=5,
        )
        # `dup` would make it blocking, for all who have it open.
        self.server = PromptProcess(
            config, socket.socket(fileno=os.dup(listener.fileno())), private_socket, is_standby=is_standby
        )
        self._task = asyncio.create_task(self.server.run_until_drained())

    async def _app(self, scope, receive, send):
        while (await receive()).get("more_body"):
            pass
        self.asked.set()
        if scope["path"] == "/slow":
            await self.released.wait()
        headers = [(b"content-length", str(len(self.name)).encode())]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": self.name.encode()})

    async def started(self):
        await until(lambda: self.server.started)
        return self

    async def end(self):
        if not self._task.done():
            self.server.leave()
        await self.gone()

    async def gone(self):
        async with asyncio.timeout(10):
            await self._task


class Client:
    def __init__(self, reader, writer):
        self.reader, self.writer = reader, writer

    def send(self, request=REQUEST):
        self.writer.write(request)

    async def receive(self):
        """(the head, the body)"""
        async with asyncio.timeout(5):
            head = await self.reader.readuntil(b"\r\n\r\n")
            length = next(int(line[16:]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:"))
            return head.lower(), (await self.reader.readexactly(length)).decode()

    async def ask(self, request=REQUEST):
        self.send(request)
        return (await self.receive())[1]


@pytest.fixture
def listener():
    with socket.create_server(("127.0.0.1", 0)) as found:
        yield found


@pytest.fixture
async def connect(listener):
    made = []

    async def connect():
        made.append(Client(*await asyncio.open_connection(*listener.getsockname()[:2])))
        return made[-1]

    yield connect
    for client in made:
        client.writer.close()
        with contextlib.suppress(OSError):
            await client.writer.wait_closed()


@pytest.fixture
async def pair(listener, tmp_path):
    """(the one that serves, its successor on standby, the successor's private socket)"""
    private = str(tmp_path / "p")
    old = await Running("old", listener).started()
    new = await Running("new", listener, private, is_standby=True).started()
    yield old, new, private
    await old.end()
    await new.end()


async def test_on_standby_it_answers_on_its_private_socket_alone(pair, connect):
    _, new, private = pair
    for _ in range(5):
        assert await (await connect()).ask() == "old"
    client = PrivateClient(private)
    received = await client.post("/x", {"content-type": "a"}, b"hi")
    assert (received.status, received.body) == (200, b"new")
    client.close()
    assert not new.server.is_accepting


async def test_once_closed_a_private_client_keeps_no_connection_of_the_few_there_may_be(pair):
    _, new, private = pair
    client = PrivateClient(private)
    slow = asyncio.create_task(client.post("/slow", {}, b""))
    await new.asked.wait()
    await client.post("/x", {}, b"")
    assert len(new.server.server_state.connections) == 2
    client.close()
    await until(lambda: len(new.server.server_state.connections) == 1)
    new.released.set()
    assert (await slow).body == b"new"
    assert (await client.post("/x", {}, b"")).body == b"new"
    await until(lambda: not new.server.server_state.connections)


async def test_connections_go_on_in_the_successor(pair, connect):
    old, new, private = pair
    idle, busy = await connect(), await connect()
    assert await idle.ask() == "old"
    old.asked.clear()
    busy.send(REQUEST.replace(b"/x", b"/slow"))
    await old.asked.wait()
    await new.server.accept()
    old.server.leave(private)
    assert await idle.ask() == "new"
    assert await (await connect()).ask() == "new"
    old.released.set()
    head, body = await busy.receive()
    assert body == "old"
    assert b"connection: close" not in head
    assert await busy.ask() == "new"
    await old.gone()


async def test_a_connection_that_was_given_away_may_rest_as_long_as_before(pair, connect):
    """It is no new one, on which a request is to arrive soon."""
    old, new, private = pair
    client = await connect()
    assert await client.ask() == "old"
    await new.server.accept()
    old.server.leave(private)
    await until(lambda: len(new.server.server_state.connections) == 1)
    (taken,) = new.server.server_state.connections
    await until(lambda: taken.timeout_keep_alive_task is not None)
    assert not taken._arrival.is_running
    assert await client.ask() == "new"
    await old.gone()


async def test_a_request_that_is_half_there_is_answered_where_it_began(pair, connect):
    old, new, private = pair
    client = await connect()
    client.send(REQUEST[:10])
    await until(lambda: any(each._head.is_open for each in old.server.server_state.connections))
    await new.server.accept()
    old.server.leave(private)
    assert await (await connect()).ask() == "new"
    client.send(REQUEST[10:])
    assert (await client.receive())[1] == "old"
    assert await client.ask() == "new"


async def test_without_a_successor_the_next_answer_says_that_it_is_the_last(listener, connect, monkeypatch):
    monkeypatch.setattr(connection_drain, "LAST_REQUESTS_S", 5.0)
    old = await Running("old", listener).started()
    client = await connect()
    assert await client.ask() == "old"
    old.server.leave()
    await until(lambda: any(each._is_leaving for each in old.server.server_state.protocols))
    client.send()
    head, body = await client.receive()
    assert body == "old"
    assert b"connection: close" in head
    assert await client.reader.read() == b""
    await old.gone()


async def test_a_successor_that_is_not_there_is_done_without(listener, connect, tmp_path, monkeypatch):
    monkeypatch.setattr(connection_drain, "HANDOVER_S", 0.1)
    monkeypatch.setattr(connection_drain, "LAST_REQUESTS_S", 0.1)
    old = await Running("old", listener).started()
    client = await connect()
    assert await client.ask() == "old"
    old.server.leave(str(tmp_path / "nobody"))
    await old.gone()
    assert await client.reader.read() == b""


read_again = Takeover._read_again


@contextlib.contextmanager
def no_more_files():
    """For this process, while the block runs."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    highest = max(int(each.name) for each in Path("/proc/self/fd").iterdir())
    resource.setrlimit(resource.RLIMIT_NOFILE, (highest + 64, before[1]))
    taken = []
    try:
        with contextlib.suppress(OSError):
            while True:
                taken.append(os.dup(0))
        yield
    finally:
        for descriptor in taken:
            os.close(descriptor)
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


async def test_a_connection_that_comes_when_no_more_files_may_be_open_waits_and_is_not_lost(tmp_path, monkeypatch):
    taken, looks = [], []
    monkeypatch.setattr(Takeover, "_read_again", lambda *given: (looks.append(given), read_again(*given)))
    takeover = Takeover(str(tmp_path / "p"), asyncio.Protocol, taken.append)
    first, last = Handover(str(tmp_path / "p")), Handover(str(tmp_path / "p"))
    client, connection = socket.socketpair()
    socket.send_fds(first._channel, [HANDED], [connection.fileno()])
    await until(lambda: taken)
    with no_more_files():
        socket.send_fds(first._channel, [HANDED], [connection.fileno()])
        await until(lambda: looks)
        assert len(taken) == 1
    await until(lambda: len(taken) == 2)
    takeover.close()
    for each in (first, last, client, connection):
        each.close()


async def test_nobody_there_is_said(tmp_path):
    with pytest.raises(Unreachable):
        await PrivateClient(str(tmp_path / "nobody")).post("/x", {}, b"")


@pytest.mark.parametrize(
    "said", [b"HTTP/1.1\r\ncontent-length: 0", b"HTTP/1.1 200 OK", b"HTTP/1.1 ok\r\ncontent-length: 0"]
)
async def test_a_response_that_is_none_is_as_nobody_there(tmp_path, said):
    async def say(reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        writer.write(said + b"\r\n\r\n")
        await writer.drain()
        writer.close()

    async with await asyncio.start_unix_server(say, tmp_path / "s"):
        with pytest.raises(Unreachable):
            await PrivateClient(str(tmp_path / "s")).post("/x", {}, b"hi")


async def test_a_kept_connection_that_has_ended_is_made_anew(listener, tmp_path, monkeypatch):
    monkeypatch.setattr(connection_drain, "LAST_REQUESTS_S", 0.1)
    private = str(tmp_path / "p")
    first = await Running("first", listener, private, is_standby=True).started()
    client = PrivateClient(private)
    assert (await client.post("/x", {}, b"")).body == b"first"
    await first.end()
    second = await Running("second", listener, private, is_standby=True).started()
    assert (await client.post("/x", {}, b"")).body == b"second"
    client.close()
    await second.end()
