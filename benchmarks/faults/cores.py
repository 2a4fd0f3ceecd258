"""Whose the cores' time is: that of the workers, the gateways, the client, and of everybody else on the machine."""

import os
import time
from collections.abc import Iterator

import psutil

from benchmarks.gateway_cpu import cpu_s
from tests.cluster import Cluster

WORKERS, GATEWAYS, CLIENT = "workers", "gateways", "client"


class Spent:
    """Seconds of CPU by whom, since it was made; and `wall_s`."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._before = self._now()
        self._begun = time.perf_counter()

    def stop(self) -> None:
        now = self._now()
        self.wall_s = time.perf_counter() - self._begun
        self.seconds = {name: now[name] - before for name, before in self._before.items()}

    @property
    def server_s(self) -> float:
        return self.seconds[WORKERS] + self.seconds[GATEWAYS]

    def share(self, name: str) -> float:
        """Of one core."""
        return self.seconds[name] / self.wall_s

    def __str__(self) -> str:
        return ", ".join(f"{name} {self.share(name):.0%}" for name in self.seconds)

    def _now(self) -> dict[str, float]:
        found = {WORKERS: 0.0, GATEWAYS: 0.0, CLIENT: cpu_s(psutil.Process())}
        for name, process in processes(self._cluster):
            found[name] += cpu_s(process)
        return found


def processes(cluster: Cluster) -> Iterator[tuple[str, psutil.Process]]:
    workers = {each["pid"] for each in cluster.health()["workers"]}
    gateways = cluster.gateways().values()
    for each in psutil.Process(cluster.process.pid).children(recursive=True):
        if each.pid in workers:
            yield WORKERS, each
        elif each in gateways:
            yield GATEWAYS, each


def leave_workers_alone(cluster: Cluster) -> None:
    """The client, which is this process, and the gateways use the cores that no worker is pinned to, if there are any:
    as on a machine where they have one."""
    found = list(processes(cluster))
    taken = {core for name, process in found if name == WORKERS for core in process.cpu_affinity()}
    if free := os.sched_getaffinity(0) - taken:
        os.sched_setaffinity(0, free)
        for name, process in found:
            if name == GATEWAYS:
                process.cpu_affinity(list(free))
