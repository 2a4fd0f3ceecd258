import pytest

from ostraka_gateway.roster import Roster
from tests.unit.gateway.world import World


@pytest.fixture
def world():
    world = World()
    yield world
    world.close()


@pytest.fixture
def roster():
    return Roster("c", "f", 0.0)
