"""Which gateway is meant, while a rollout has two of them running."""

import json
import socket
import threading
from contextlib import contextmanager, suppress
from types import SimpleNamespace

import pytest

from ostraka.chaos_command import _choose
from ostraka.running_cluster import RunningCluster
from ostraka_gateway.config import GatewayConfig, GatewayZygoteConfig, RolloutConfig
from ostraka_shared.errors import ConfigError
from ostraka_shared.options import to_flags


def gateway(pid, number, generation, figures_at=tuple("abc"), *, is_forked=True):
    rollout = RolloutConfig(generation=generation)
    config = GatewayConfig("ipc:///w", "m", 3, figures_at, number=number, rollout=rollout)
    flags = to_flags(config)
    if is_forked:
        flags = to_flags(GatewayZygoteConfig("m", 4, figures_at, generation))
    command = ["python", "-m", f"ostraka_gateway{'.zygote' if is_forked else ''}", *flags]
    return SimpleNamespace(pid=pid, create_time=lambda: 0.0, cmdline=lambda: command, name=lambda: f"ostraka g{number}")


def cluster_of(*gateways):
    worker = SimpleNamespace(pid=1, create_time=lambda: 0.0, name=lambda: "ostraka w0")
    spare = SimpleNamespace(pid=2, create_time=lambda: 0.0, name=lambda: "ostraka gspare")
    found = RunningCluster.__new__(RunningCluster)
    children = [worker, spare, *gateways]
    found.supervisor = SimpleNamespace(is_running=lambda: True, children=lambda **_: children)
    return found


@contextmanager
def told(path, *workers):
    """At that path, whoever connects is told of these (name, incarnation, pid)."""
    figures = {"workers": [dict(zip(("worker", "incarnation", "pid"), each, strict=True)) for each in workers]}

    def tell():
        with suppress(OSError):
            while True:
                with door.accept()[0] as asked:
                    asked.sendall(json.dumps(figures).encode())

    with socket.socket(socket.AF_UNIX) as door:
        door.bind(str(path))
        door.listen()
        threading.Thread(target=tell, daemon=True).start()
        yield (str(path), "", "")
        door.shutdown(socket.SHUT_RDWR)


def test_workers_are_named_by_their_own_gateways_whoever_has_the_port(tmp_path):
    old, new = told(tmp_path / "old", ("w0", 1, 5), ("w0", 2, 6)), told(tmp_path / "new", ("w0", 1, 7))
    with old as at_old, new as at_new:
        alone = cluster_of(gateway(10, 0, 1, at_old))
        assert alone.workers() == {"w0": 6}, "the one before is leaving"
        assert _choose(alone, None, "kill") == ("w0", 6)
        both = cluster_of(gateway(10, 0, 1, at_old), gateway(20, 0, 2, at_new))
        assert both.workers() == {"w0@1": 6, "w0@2": 7}
        assert _choose(both, "w0@2", "cut") == ("w0@2", 7)
        with pytest.raises(ConfigError, match="its generation: say w0@1 or w0@2"):
            _choose(both, "w0", "kill")
        with pytest.raises(ConfigError, match="no w1 here: there are w0@1, w0@2, gateway@1, gateway@2"):
            _choose(both, "w1", "kill")


def test_where_no_gateway_speaks_no_worker_is_guessed_at():
    with pytest.raises(ConfigError, match="starting, or hang"):
        cluster_of(gateway(10, 0, 1)).workers()


def test_of_one_generation_the_names_are_those_of_the_log():
    found = cluster_of(gateway(11, 1, 2, is_forked=False), gateway(10, 0, 2))
    assert found.gateways() == {"gateway": 10, "gateway1": 11}
    assert _choose(found, "gateway", "kill") == ("gateway", 10)


def test_of_two_each_says_which_and_no_other_name_is_guessed_at():
    found = cluster_of(gateway(20, 0, 2), gateway(10, 0, 1), gateway(11, 1, 1))
    assert found.gateways() == {"gateway@1": 10, "gateway1@1": 11, "gateway@2": 20}
    assert _choose(found, "gateway@2", "kill") == ("gateway@2", 20)
    found.workers = dict
    with pytest.raises(ConfigError, match="say gateway@1 or gateway@2"):
        _choose(found, "gateway", "kill")
    with pytest.raises(ConfigError, match="its generation: say gateway1@1"):
        _choose(found, "gateway1", "kill")


def test_what_is_of_workers_only_is_so_in_a_rollout_too():
    with pytest.raises(ConfigError, match="cut is for workers"):
        _choose(cluster_of(gateway(20, 0, 2), gateway(10, 0, 1)), "gateway@1", "cut")
