"""What became of a request frees it at once, be it thousands a second: nothing is left for the garbage collector, which
comes only once there is a lot of it, and moves who is in flight then to where it looks still more rarely."""

import asyncio
import gc

import pytest
from starlette import requests
from uvicorn.config import Config
from uvicorn.server import ServerState

from ostraka_gateway.dialect import SystemOneDialect
from ostraka_gateway.parts import Part, Request
from ostraka_gateway.refusing_protocol import protocol_for
from ostraka_shared import errors
from tests.unit.gateway.test_bounded_protocol import Transport
from tests.unit.gateway.world import LIMIT, World, is_empty, suspect
from tests.waiting import until


def answered(world, worker):
    world.ask("a")
    world.answer(worker, "a")


def answered_to_two(world, worker):
    world.ask("a")
    world.ask("b", as_name="a")
    world.answer(worker, "a")


def answered_in_parts(world, worker):
    other = world.join("w1")
    world.ask("a", prompts=4, count=10)
    world.answer(worker, "a/0", p_yes=(0.5,) * 2)
    world.answer(other, "a/1", p_yes=(0.5,) * 2)
    world.call(world.lose, other)


def failed(world, worker):
    world.ask("a")
    world.fail(worker, "a")


def expired_before_its_answer(world, worker):
    world.ask("a", deadline_s=1.0)
    world.loop.advance(1.0)
    world.answer(worker, "a")


def expired_in_the_line(world, worker):
    world.ask("a", 100)
    world.ask("b", 100, deadline_s=1.0)
    world.loop.advance(1.0)
    world.answer(worker, "a")


def left(world, worker):
    world.ask("a")
    world.call(world.single_flight.abandon, "a")
    world.answer(worker, "a")


def cancelled(world, worker):
    world.ask("a").cancel()
    world.loop.settle()
    world.answer(worker, "a")


def answered_by_a_second_worker(world, worker):
    other = world.join("w1")
    world.ask("a")
    first, second = (worker, other) if worker.held else (other, worker)
    suspect(world, first)
    world.answer(second, "a", attempt=2)
    world.answer(first, "a", attempt=1)


def poisoned(world, worker):
    world.join("w1")
    world.ask("a")
    for _ in range(2):
        holder = next(each for each in world.roster if each.held)
        world.call(world.lose, holder, "exit")


def refused(world, worker):
    world.ask("a", LIMIT)
    world.ask("b", LIMIT)
    assert world.ask("c", 1).done()
    for name in ("a", "b"):
        world.answer(worker, name)
        world.call(world.dispatcher.pump)


FATES = (
    answered,
    answered_to_two,
    answered_in_parts,
    failed,
    expired_before_its_answer,
    expired_in_the_line,
    left,
    cancelled,
    answered_by_a_second_worker,
    poisoned,
    refused,
)


class Told(World):
    """Whoever asks takes an error as a client does, and keeps nothing of it."""

    def __init__(self):
        super().__init__()
        self._ask, self.single_flight.ask = self.single_flight.ask, self._ask_and_be_told

    async def _ask_and_be_told(self, *asked):
        try:
            await self._ask(*asked)
        except errors.ServingError as bad:
            bad.__traceback__ = None  # as `respond` does


@pytest.fixture
def world():
    world = Told()
    yield world
    world.close()


@pytest.fixture
def new_objects():
    """Those made since, garbage among them that nobody has collected."""
    gc.collect()
    gc.freeze()
    gc.disable()
    yield gc.get_objects
    gc.enable()
    gc.unfreeze()


@pytest.mark.parametrize("fate", FATES, ids=lambda fate: fate.__name__.replace("_", " "))
def test_a_request_is_forgotten_whatever_becomes_of_it(world, new_objects, fate):
    fate(world, world.join("w0"))
    assert is_empty(world)
    assert not list(world.parts)
    world.tasks.clear()
    assert count(new_objects, Request | Part) == 0


async def test_a_refusal_holds_nothing_of_the_request(exchange, new_objects):
    status, _, _ = await exchange.ask(SystemOneDialect("m"), b"x" * 1000)
    assert status == 529
    assert count(new_objects, requests.Request) == 0


@pytest.mark.parametrize("is_answered", [True, False], ids=["answered", "in vain"])
async def test_a_connection_is_forgotten_with_its_end(new_objects, is_answered):
    may_answer = asyncio.Event()

    async def app(_scope, _receive, send):
        await may_answer.wait()
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"0")]})
        await send({"type": "http.response.body"})

    connections = protocol_for(10, 100)
    config, state = Config(app, lifespan="off", log_config=None), ServerState()
    for number in range(4):
        protocol = connections(config, state, {}, asyncio.get_running_loop())
        protocol.connection_made(Transport())
        protocol.data_received(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n" * (1 + number % 2))
        if is_answered:
            may_answer.set()
            await until(lambda each=protocol: not each.is_busy)
        protocol.connection_lost(None)
    del protocol
    may_answer.set()
    await until(lambda: not state.tasks)
    assert count(new_objects, connections) == 0


def count(objects, kind):
    return sum(isinstance(each, kind) for each in objects())
