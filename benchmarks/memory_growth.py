"""Does a server that is left alone grow? The own memory of each of its processes (that it shares with none) after so
many requests, and what it gains in 100,000 more: over the later half, with an interval of 95 %.

python -m benchmarks.memory_growth                                   # 300,000 requests, the fake engine, one worker
python -m benchmarks.memory_growth --model int8 --workers 2 --requests 20000
"""

import argparse
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil

from benchmarks.faults.processes import MB, SUPERVISOR, kind_of
from benchmarks.faults.serving import FAKE, served
from benchmarks.faults.trend import Point, gain
from benchmarks.load import make_bodies, run_load
from ostraka_worker.build.catalog import PRECISIONS
from tests.cluster import Cluster, running
from tests.fake_model import make_fake_model

IN_FLIGHT = 16
SAMPLES = 60
DISTINCT = 24_000
"""Requests, which then come again: as many as their making leaves time for."""
UNIT = 100_000


def main() -> None:
    values = parse_arguments()
    bodies = make_bodies(min(DISTINCT, values.requests), seed=9)
    own: dict[str, list[Point]] = defaultdict(list)
    with serving(values.model, values.workers) as cluster:
        supervisor = psutil.Process(cluster.process.pid)
        every, done = max(1, values.requests // SAMPLES), 0
        while done < values.requests:
            run_load(cluster.url, [bodies[place % len(bodies)] for place in range(done, done + every)], IN_FLIGHT)
            done += every
            sample(supervisor, done, own)
            print(f"{done:8} " + ", ".join(f"{name} {points[-1][1]:.2f}" for name, points in own.items()), flush=True)
    report(own)


def sample(supervisor: psutil.Process, done: int, own: dict[str, list[Point]]) -> None:
    for each in [supervisor, *supervisor.children(recursive=True)]:
        name = SUPERVISOR if each == supervisor else each.name()
        if name == SUPERVISOR or kind_of(name):
            own[name].append((done, each.memory_full_info().uss / MB))


def report(own: dict[str, list[Point]]) -> None:
    for name, points in own.items():
        found = gain([points[len(points) // 2 :]]).times(UNIT)
        first, last = points[0][1], points[-1][1]
        print(
            f"{name:16} {first:.2f} MB at first, {last:.2f} at last; {found.rate:+.3f} ± {found.doubt:.3f} in {UNIT:,}"
        )


@contextmanager
def serving(model: str, workers: int) -> Iterator[Cluster]:
    """The fake engine takes no time here."""
    if model != FAKE:
        with served(model, workers) as cluster:
            yield cluster
        return
    with tempfile.TemporaryDirectory() as folder:
        path = make_fake_model(Path(folder) / "model", ms_per_token=0.0).path
        with running(path, f"--workers={workers}") as cluster:
            yield cluster


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", choices=(FAKE, *PRECISIONS), default=FAKE)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--requests", type=int, default=300_000)
    return parser.parse_args()


if __name__ == "__main__":
    main()
