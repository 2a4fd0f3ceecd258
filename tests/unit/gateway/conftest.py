import pytest

from ostraka_gateway.roster import Roster
from tests.unit.gateway.full_gateway import Exchange
from tests.unit.gateway.world import World


@pytest.fixture
def world():
    world = World()
    yield world
    world.close()


@pytest.fixture
def roster():
    return Roster("c", "f", 0.0)


@pytest.fixture
def exchange():
    made = Exchange()
    yield made
    made.gateway.large_bodies.close()
    made.gateway.tokenizer_pool.shutdown()
