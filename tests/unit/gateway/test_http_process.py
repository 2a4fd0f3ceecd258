"""One of several that accept on a socket leaves: what it has accepted is answered, what it has not is for the others."""

import asyncio
import socket
from contextlib import closing

import pytest
import uvicorn

from ostraka_gateway import connection_drain
from ostraka_gateway.refusing_protocol import protocol_for
from tests.unit.gateway.prompt_process import PromptProcess
from tests.waiting import DEADLINE_S, until

REQUEST = b"GET / HTTP/1.1\r\nhost: a\r\n\r\n"


async def app(scope, receive, send):
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"0")]})
    await send({"type": "http.response.body"})


@pytest.fixture
def shared():
    """The supervisor's own; the others' too."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.setblocking(False)
        yield listener


@pytest.fixture
async def process(shared):
    config = uvicorn.Config(app, http=protocol_for(10, 100), lifespan="off", log_config=None)
    made = PromptProcess(config, shared.dup())
    served = asyncio.create_task(made.run_until_drained())
    await until(lambda: made.started)
    yield made
    if not served.done():
        made.leave()
        made.leave()
    await asyncio.wait_for(served, DEADLINE_S)


async def dial(shared):
    return await asyncio.open_connection(*shared.getsockname())


async def ask(reader, writer):
    writer.write(REQUEST)
    return await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), DEADLINE_S)


async def test_a_client_that_keeps_its_connection_has_one_more_answer(process, shared):
    reader, writer = await dial(shared)
    with closing(writer):
        assert b"connection: close" not in await ask(reader, writer)
        process.leave()
        await until(lambda: all(each._is_leaving for each in process.server_state.connections))
        assert b"connection: close" in await ask(reader, writer)
        assert await asyncio.wait_for(reader.read(), DEADLINE_S) == b""


async def test_one_that_is_about_to_leave_accepts_and_has_the_next_request_come_on_another_connection(process, shared):
    before = await dial(shared)
    await ask(*before)
    process.announce()
    for reader, writer in (before, await dial(shared)):
        with closing(writer):
            assert b"connection: close" in await ask(reader, writer)
            assert await asyncio.wait_for(reader.read(), DEADLINE_S) == b""


async def test_one_that_rests_is_closed_while_its_client_can_still_come_again(process, shared, monkeypatch):
    monkeypatch.setattr(connection_drain, "LAST_REQUESTS_S", 0.2)
    reader, writer = await dial(shared)
    with closing(writer):
        await ask(reader, writer)
        process.announce()
        assert await asyncio.wait_for(reader.read(), DEADLINE_S) == b""
    again = await dial(shared)
    with closing(again[1]):
        assert b"200" in await ask(*again)


async def test_what_it_has_not_accepted_is_for_the_others(process, shared):
    process.leave()
    with socket.create_connection(shared.getsockname()) as client:
        client.sendall(REQUEST)
        accepted, _ = await asyncio.wait_for(asyncio.get_running_loop().sock_accept(shared), DEADLINE_S)
        with accepted:
            assert accepted.recv(1000) == REQUEST


async def test_one_that_rests_is_closed_in_the_end(process, shared, monkeypatch):
    monkeypatch.setattr(connection_drain, "LAST_REQUESTS_S", 0.2)
    reader, writer = await dial(shared)
    with closing(writer):
        await ask(reader, writer)
        begun = asyncio.get_running_loop().time()
        process.leave()
        assert await asyncio.wait_for(reader.read(), DEADLINE_S) == b""
        assert asyncio.get_running_loop().time() - begun >= 0.2


async def test_where_all_leave_nobody_is_waited_for(process, shared, monkeypatch):
    monkeypatch.setattr(connection_drain, "LAST_REQUESTS_S", 10 * DEADLINE_S)
    reader, writer = await dial(shared)
    with closing(writer):
        await ask(reader, writer)
        process.leave()
        shared.shutdown(socket.SHUT_RDWR)
        assert await asyncio.wait_for(reader.read(), DEADLINE_S) == b"", "long before the time for last requests"
