import asyncio

import pytest

from ostraka_gateway.body import read_body
from ostraka_gateway.large_bodies import BODIES_HELD, LARGE_BODY_BYTES, LargeBodies, Room
from ostraka_shared.errors import Overloaded
from tests.unit.gateway.test_body import request
from tests.waiting import let_run

MOST = 2 * LARGE_BODY_BYTES
LARGE = b"x" * (LARGE_BODY_BYTES + 1)


async def crowd(bodies, count=BODIES_HELD):
    rooms = [Room(bodies) for _ in range(count)]
    for room in rooms:
        await room.take(MOST, MOST)
    return rooms


async def read(bodies, *chunks, timeout_s=10.0, **headers):
    with Room(bodies) as room:
        return await read_body(request(*chunks, **headers), MOST, timeout_s, room)


@pytest.mark.parametrize("headers", [{"content_length": str(len(LARGE))}, {}], ids=["as announced", "as it grew"])
async def test_a_large_body_waits_for_room(headers):
    bodies = LargeBodies(MOST)
    first, *_ = await crowd(bodies)
    reading = asyncio.create_task(read(bodies, LARGE, **headers))
    await let_run()
    assert not reading.done()
    first.__exit__()
    assert await reading == LARGE


async def test_without_room_it_is_refused_after_the_read_timeout():
    bodies = LargeBodies(MOST)
    await crowd(bodies)
    with pytest.raises(Overloaded) as caught:
        await read(bodies, LARGE, content_length=str(len(LARGE)), timeout_s=0.01)
    assert caught.value.retry_after_s


async def test_small_bodies_never_wait():
    bodies = LargeBodies(MOST)
    await crowd(bodies)
    small = b"x" * LARGE_BODY_BYTES
    assert await read(bodies, small, content_length=str(len(small))) == small


async def test_first_come_first_served_and_who_leaves_keeps_nobody_out():
    bodies = LargeBodies(MOST)
    held = await crowd(bodies)
    waiting = [Room(bodies) for _ in range(3)]
    tasks = [asyncio.create_task(room.take(MOST, MOST)) for room in waiting]
    await let_run()
    tasks[0].cancel()
    held[0].__exit__()
    await tasks[1]
    assert not tasks[2].done()
    waiting[1].__exit__()
    await tasks[2]


async def test_whoever_is_let_in_while_leaving_gives_its_room_back():
    bodies = LargeBodies(MOST)
    held = await crowd(bodies)
    taking = asyncio.create_task(Room(bodies).take(MOST, MOST))
    await let_run()
    held[0].__exit__()
    taking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await taking
    await Room(bodies).take(MOST, MOST)
