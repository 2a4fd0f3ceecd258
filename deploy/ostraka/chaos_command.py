"""`ostraka chaos`: one fault for one process of a server that runs on this machine, to see that nothing is lost."""

import argparse
import random

from ostraka.chaos import FAULTS
from ostraka.running_cluster import RunningCluster
from ostraka_shared.errors import ConfigError
from ostraka_shared.setting_sources import refuse_unused

OF_WORKERS_ONLY = ("oom", "cut")
"""A gateway has clients' connections too, and it alone knows what it promised them."""


def register(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("fault", choices=FAULTS, help="what happens to the process")
    parser.add_argument("--server", default="http://127.0.0.1:8017", metavar="URL", help="where the server answers")
    parser.add_argument("--target", metavar="NAME", help="w0, w1, ... or gateway, gateway1, ... (default: some worker)")
    parser.add_argument("--seconds", type=float, metavar="S", help=_describe_seconds())


def run(values: argparse.Namespace) -> int:
    inject, default_s = FAULTS[values.fault]
    if values.fault == "kill":
        refuse_unused(values, "on kill, which is once and for all", "--seconds")
    seconds = default_s if values.seconds is None else values.seconds
    if not 0 <= seconds < float("inf"):
        raise ConfigError(f"--seconds must be at least 0, not {seconds}")
    cluster = RunningCluster(values.server)
    name, pid = _choose(cluster, values.target, values.fault)
    with cluster.hold(name, pid) as process:
        print(f"{name} (pid {pid}): {values.fault}", flush=True)
        print(f"{name} (pid {pid}): {inject(process, seconds)}")
    return 0


def _choose(cluster: RunningCluster, target: str | None, fault: str) -> tuple[str, int]:
    gateways = cluster.gateways()
    if target in gateways:
        if fault in OF_WORKERS_ONLY:
            raise ConfigError(f"{fault} is for workers: a gateway's connections are its clients' too")
        return target, gateways[target]
    workers = cluster.workers()
    if target and (alike := [name for name in (*gateways, *workers) if name.startswith(f"{target}@")]):
        raise ConfigError(f"a rollout is under way, and each name has its generation: say {' or '.join(alike)}")
    if not workers:
        raise ConfigError("the server has no worker just now")
    name = random.choice(sorted(workers)) if target is None else target  # noqa: S311  no secret
    if name not in workers:
        raise ConfigError(f"no {name} here: there are {', '.join([*sorted(workers), *gateways])}")
    return name, workers[name]


def _describe_seconds() -> str:
    lasting = ", ".join(f"{name} {default_s:g}" for name, (_, default_s) in FAULTS.items() if default_s)
    return f"how long it lasts (default: {lasting}; cut: once)"
