"""Probes on a crowded server: 2,000 kept connections that rest, 200 clients that ask without a pause.

    python -m benchmarks.faults.idle_connections --idle 2000 --active 200 --seconds 20

Ends with 1 where the 99th percentile of a probe is 100 ms or more, or a resting connection was closed.
"""

import argparse
import asyncio
import itertools
import sys
import time

import uvloop

from benchmarks.faults.asking import PATH
from benchmarks.faults.outcomes import percentile
from benchmarks.faults.overload import BODIES
from benchmarks.faults.serving import FAKE, served
from benchmarks.faults.table import as_markdown, as_ms
from benchmarks.faults.wire import Connection
from benchmarks.load import make_bodies
from ostraka_gateway.open_files import allow_open_files
from ostraka_worker.build.catalog import PRECISIONS

WORKERS = 2
PROBES = ("/livez", "/readyz", "/health")
PROBE_GAP_S = 0.05
PROBE_S = 0.1
AT_ONCE = 100


async def open_idle(url: str, count: int) -> list[Connection]:
    """Each has been answered once, and rests."""
    opened = [Connection(url) for _ in range(count)]
    for begin in range(0, count, AT_ONCE):
        await asyncio.gather(*(each.ask("GET", "/livez") for each in opened[begin : begin + AT_ONCE]))
    return opened


async def count_alive(connections: list[Connection]) -> int:
    async def is_alive(connection: Connection) -> bool:
        try:
            return (await connection.ask("GET", "/livez")).status == 200
        except OSError:
            return False

    alive = 0
    for begin in range(0, len(connections), AT_ONCE):
        alive += sum(await asyncio.gather(*(is_alive(each) for each in connections[begin : begin + AT_ONCE])))
    return alive


async def probe(url: str, path: str, ends: float) -> list[float]:
    """The seconds each took, at even intervals, each from when it was due."""
    connection, taken, due = Connection(url), [], time.perf_counter()
    while due < ends:
        await asyncio.sleep(max(0.0, due - time.perf_counter()))
        assert (await connection.ask("GET", path)).status == 200
        taken.append(time.perf_counter() - due)
        due = max(due + PROBE_GAP_S, time.perf_counter())
    connection.close()
    return taken


async def run(url: str, values: argparse.Namespace) -> tuple[dict[str, list[float]], float, int]:
    """The probes' times, the answers a second that the active clients got, and how many idle connections lived."""
    idle = await open_idle(url, values.idle)
    bodies, answered = itertools.cycle(make_bodies(BODIES)), 0
    ends = time.perf_counter() + values.seconds

    async def work() -> None:
        nonlocal answered
        connection = Connection(url)
        while time.perf_counter() < ends:
            answer = await connection.ask("POST", PATH, next(bodies), x_deadline_ms="60000")
            answered += answer.status == 200
        connection.close()

    working = asyncio.gather(*(work() for _ in range(values.active)))
    probed = dict(zip(PROBES, await asyncio.gather(*(probe(url, path, ends) for path in PROBES)), strict=True))
    alive = await count_alive(idle)
    await working
    return probed, answered / values.seconds, alive


def main() -> int:
    values = parse_arguments()
    connections = values.idle + values.active + len(PROBES) + AT_ONCE
    allow_open_files(connections)  # ours
    with served(values.model, WORKERS, f"--connections={connections}") as cluster:
        probed, rate, alive = uvloop.run(run(cluster.url, values))
    rows = [
        (path, str(len(taken)), *(as_ms(percentile(taken, share)) for share in (0.5, 0.99, 1.0)))
        for path, taken in probed.items()
    ]
    print(as_markdown(("probe", "asked", "median", "p99", "longest"), rows))
    print(f"{values.active} clients were answered {rate:.1f} times a second; {alive} of {values.idle} idle ones lived")
    is_kept = alive == values.idle and all(percentile(taken, 0.99) < PROBE_S for taken in probed.values())
    print("kept" if is_kept else "NOT KEPT")
    return 0 if is_kept else 1


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", choices=(*PRECISIONS, FAKE), default="int8")
    parser.add_argument("--seconds", type=float, default=20.0, help="below 60: one that rests as long is closed")
    parser.add_argument("--idle", type=int, default=2000)
    parser.add_argument("--active", type=int, default=200)
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
