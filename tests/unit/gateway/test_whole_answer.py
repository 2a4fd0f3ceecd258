"""What the system is given of an answer, write by write."""

import asyncio

import pytest
from uvicorn.config import Config
from uvicorn.server import ServerState

from ostraka_gateway.refusing_protocol import protocol_for
from tests.unit.gateway.test_bounded_protocol import Transport

START = {"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"4")]}
CHUNKED = START | {"headers": []}


class Writes(Transport):
    def __init__(self):
        super().__init__()
        self.writes = []

    def write(self, sent):
        self.writes.append(bytes(sent))


def body(text, *, more=False):
    return {"type": "http.response.body", "body": text, "more_body": more}


async def written(request, *messages, reads=False):
    """By an application that sends these messages."""

    async def app(_scope, receive, send):
        if reads:
            await receive()
        for message in messages:
            await send(message)

    config = Config(app, lifespan="off", log_config=None)
    protocol = protocol_for(10, 100)(config, ServerState(), {}, asyncio.get_running_loop())
    protocol.connection_made(Writes())
    protocol.data_received(request)
    await asyncio.gather(*protocol.tasks)
    protocol.connection_lost(None)
    return protocol.transport


GET = b"GET / HTTP/1.1\r\nhost: a\r\n\r\n"


@pytest.mark.parametrize("count", [1, 2])
async def test_an_answer_is_one_write(count):
    transport = await written(GET * count, START, body(b"four"))
    assert len(transport.writes) == count
    for each in transport.writes:
        head, _, text = each.partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200 ")
        assert text == b"four"


async def test_only_the_head_waits():
    transport = await written(GET, CHUNKED, body(b"one", more=True), body(b"two", more=True), body(b""))
    assert [each.rpartition(b"\r\n\r\n")[2] or each for each in transport.writes][1:] == [b"3\r\ntwo\r\n", b"0\r\n\r\n"]
    assert transport.writes[0].endswith(b"\r\n\r\n3\r\none\r\n")


async def test_a_head_without_a_body_does_not_wait():
    (head,) = (await written(b"HEAD / HTTP/1.1\r\nhost: a\r\n\r\n", START, body(b"four"))).writes
    assert head.startswith(b"HTTP/1.1 200 ")
    assert head.endswith(b"\r\n\r\n")


async def test_who_waits_to_be_told_to_go_on_is_told_at_once():
    request = b"POST / HTTP/1.1\r\nhost: a\r\nexpect: 100-continue\r\ncontent-length: 2\r\n\r\nhi"
    go_on, answer = (await written(request, START, body(b"four"), reads=True)).writes
    assert go_on.startswith(b"HTTP/1.1 100 ")
    assert answer.endswith(b"four")


async def test_nothing_is_told_of_an_answer_that_failed_half_way():
    transport = await written(GET, START)
    assert transport.writes == []
    assert transport.ended == "closed"
