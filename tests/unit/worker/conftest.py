import pytest

from tests.unit.worker.serving import make_world


@pytest.fixture
def world(monkeypatch):
    return make_world(monkeypatch)
