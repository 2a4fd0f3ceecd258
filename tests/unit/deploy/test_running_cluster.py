"""Which gateway is meant, while a rollout has two of them running."""

from types import SimpleNamespace

import pytest

from ostraka.chaos_command import _choose
from ostraka.running_cluster import RunningCluster
from ostraka_gateway.config import GatewayConfig, RolloutConfig
from ostraka_shared.errors import ConfigError
from ostraka_shared.options import to_flags


def gateway(pid, number, generation):
    rollout = RolloutConfig(generation=generation)
    config = GatewayConfig("ipc:///w", "m", 3, tuple("abc"), number=number, rollout=rollout)
    return SimpleNamespace(
        pid=pid, create_time=lambda: 0.0, cmdline=lambda: ["python", "-m", "ostraka_gateway", *to_flags(config)]
    )


def cluster_of(*gateways):
    worker = SimpleNamespace(
        pid=1, create_time=lambda: 0.0, cmdline=lambda: ["python", "-m", "ostraka_worker", "--number=0"]
    )
    found = RunningCluster.__new__(RunningCluster)
    children = [worker, *gateways]
    found.supervisor = SimpleNamespace(is_running=lambda: True, children=lambda **_: children)
    found.workers = lambda: {"w0": 1}
    return found


def test_of_one_generation_the_names_are_those_of_the_log():
    found = cluster_of(gateway(11, 1, 2), gateway(10, 0, 2))
    assert found.gateways() == {"gateway": 10, "gateway1": 11}
    assert _choose(found, "gateway", "kill") == ("gateway", 10)


def test_of_two_each_says_which_and_no_other_name_is_guessed_at():
    found = cluster_of(gateway(20, 0, 2), gateway(10, 0, 1), gateway(11, 1, 1))
    assert found.gateways() == {"gateway@1": 10, "gateway1@1": 11, "gateway@2": 20}
    assert _choose(found, "gateway@2", "kill") == ("gateway@2", 20)
    with pytest.raises(ConfigError, match="gateway@1 and gateway@2; say which"):
        _choose(found, "gateway", "kill")
    with pytest.raises(ConfigError, match="more than one: gateway1@1; say which"):
        _choose(found, "gateway1", "kill")


def test_what_is_of_workers_only_is_so_in_a_rollout_too():
    with pytest.raises(ConfigError, match="cut is for workers"):
        _choose(cluster_of(gateway(20, 0, 2), gateway(10, 0, 1)), "gateway@1", "cut")
