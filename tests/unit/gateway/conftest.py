import pytest

from tests.unit.gateway.world import World


@pytest.fixture
def world():
    world = World()
    yield world
    world.close()
