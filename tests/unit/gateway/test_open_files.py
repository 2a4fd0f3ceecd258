"""How many files a gateway may need open, and what becomes of a system that allows fewer."""

import resource

import pytest

from ostraka_gateway import open_files
from ostraka_gateway.http_config import HttpConfig
from ostraka_gateway.open_files import CROWDED_CONNECTIONS, OTHER_FILES, allow_open_files
from ostraka_shared.errors import ConfigError


@pytest.fixture
def allowed(monkeypatch):
    """What was asked of a system whose limits the test sets."""

    def with_limits(soft, hard):
        asked = []
        monkeypatch.setattr(open_files.resource, "getrlimit", lambda _: (soft, hard))
        monkeypatch.setattr(open_files.resource, "setrlimit", lambda _, limits: asked.append(limits))
        return asked

    return with_limits


def test_each_worker_and_each_other_gateway_takes_two(allowed):
    asked = allowed(10, 5000)
    for workers, gateways in ((1, 1), (64, 1), (64, 4)):
        allow_open_files(100, workers, gateways)
    least = 100 + CROWDED_CONNECTIONS + OTHER_FILES
    assert asked == [(least + 4, 5000), (least + 130, 5000), (least + 136, 5000)]


def test_by_default_a_middling_machine_is_within_what_any_system_allows(allowed):
    asked = allowed(1024, 1024)
    allow_open_files(HttpConfig.connections, workers=28)
    assert asked == []
    with pytest.raises(ConfigError, match=r"--connections=900 needs 1034 open files; this system allows 1024"):
        allow_open_files(HttpConfig.connections, workers=34)


def test_who_may_open_any_number_is_left_alone(allowed):
    asked = allowed(resource.RLIM_INFINITY, resource.RLIM_INFINITY)
    allow_open_files(10**9)
    assert asked == []
