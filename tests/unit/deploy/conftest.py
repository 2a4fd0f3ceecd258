import pytest

from tests.unit.deploy.supervised import World


@pytest.fixture
def world(monkeypatch):
    return World(monkeypatch)


@pytest.fixture
def pair(monkeypatch):
    return World(monkeypatch, gateways=2)
