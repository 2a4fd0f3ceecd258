"""Injects faults as `ostraka chaos` does, from a process of its own: what that computes is not the clients' time."""

import asyncio
import contextlib
import http.client
import json
import signal
import time
import urllib.parse
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.connection import Connection

import psutil

from ostraka.chaos import FAULTS
from ostraka.running_cluster import HeldProcess, RunningCluster
from ostraka_shared.errors import ConfigError

BUSY_S = 2.0
"""How long to wait for a worker to be in a call, so that its end costs something."""
ZYGOTE = "zygote"
NOT_INJECTED = "not injected"
SIGNALS = {"kill": signal.SIGKILL, "term": signal.SIGTERM, "halt": signal.SIGSTOP}


@dataclass(frozen=True, slots=True)
class Order:
    """What happens to whom. `fault` is one of `ostraka chaos`, or `term`: SIGTERM, or `halt`: SIGSTOP for ever. Several
    targets are of `kill` and these two, with `gap_s` between them. `is_in_call`: the first of them is hit while it
    computes."""

    fault: str
    targets: tuple[str, ...]
    seconds: float = 0.0
    gap_s: float = 0.0
    is_in_call: bool = True


class Injector:
    def __init__(self, url: str) -> None:
        context = get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=serve, args=(theirs, url), daemon=True)
        self._process.start()
        theirs.close()

    async def inject(self, order: Order) -> str:
        """What was done, once it is over."""
        self._pipe.send(order)
        said: str = await asyncio.get_running_loop().run_in_executor(None, self._pipe.recv)
        return said

    def close(self) -> None:
        self._pipe.close()
        self._process.join(5)
        self._process.kill()


def serve(pipe: Connection, url: str) -> None:
    cluster = RunningCluster(url)
    with contextlib.suppress(EOFError):
        while True:
            order = pipe.recv()
            try:
                pipe.send(obey(cluster, url, order))
            except ConfigError as bad:
                pipe.send(f"{NOT_INJECTED}: {bad}")


def obey(cluster: RunningCluster, url: str, order: Order) -> str:
    with contextlib.ExitStack() as stack:
        held = [stack.enter_context(cluster.hold(name, find(cluster, name))) for name in order.targets]
        if order.is_in_call:
            wait_busy(url, order.targets[0])
        if order.fault in SIGNALS:
            return _signal(held, SIGNALS[order.fault], order.gap_s)
        inject, _ = FAULTS[order.fault]
        return inject(held[0], order.seconds)


def _signal(processes: Sequence[HeldProcess], number: signal.Signals, gap_s: float) -> str:
    for place, process in enumerate(processes):
        if place:
            time.sleep(gap_s)
        process.send(number)
    return f"{number.name} to {len(processes)}"


def find(cluster: RunningCluster, name: str) -> int:
    """Its pid. Raises ConfigError where there is none of that name just now."""
    found = cluster.gateways() if name.startswith("gateway") else cluster.workers()
    if name == ZYGOTE:
        workers = set(found.values())
        zygotes = [child.pid for child in cluster.supervisor.children() if _is_zygote(child, workers)]
        found = dict(zip([ZYGOTE], zygotes, strict=False))
    if name not in found:
        raise ConfigError(f"there is no {name} just now")
    return found[name]


def _is_zygote(child: psutil.Process, workers: Collection[int]) -> bool:
    """Those it forked have its command line, and the same parent."""
    try:
        return child.pid not in workers and "ostraka_worker.zygote" in child.cmdline()
    except psutil.Error:
        return False


def wait_busy(url: str, name: str) -> bool:
    """Until that worker is in a call; not for longer than `BUSY_S`."""
    connection = http.client.HTTPConnection(urllib.parse.urlsplit(url).netloc, timeout=BUSY_S)
    ends = time.monotonic() + BUSY_S
    with contextlib.closing(connection):
        while time.monotonic() < ends:
            connection.request("GET", "/health")
            workers = json.loads(connection.getresponse().read())["workers"]
            if any(each["worker"] == name and each["running_tokens"] for each in workers):
                return True
    return False
