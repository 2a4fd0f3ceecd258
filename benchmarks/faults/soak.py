"""Mixed load for half an hour, five minutes with random faults and five without in turns: nothing lost, and neither
memory nor open files that grow.

    make soak       or   python -m benchmarks.faults.soak --minutes 30 --seed 1

Memory and files are fitted over time for each kind of process, less each one's first minute. Ends with 1 if a request
was lost, failed, wrong or answered twice; and, in runs of 20 minutes and more, if a kind grows by more than 5 % of its
mean.
"""

import argparse
import asyncio
import contextlib
import random
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from benchmarks.faults.asking import Clients, SteadyLoad, make_asked, make_large, measure_capacity
from benchmarks.faults.outcomes import Kind, count_duplicates, percentile
from benchmarks.faults.run import REAL, Case, FaultRun
from benchmarks.faults.serving import FAKE, served
from benchmarks.faults.table import as_json, as_markdown, as_ms
from benchmarks.faults.trend import Point, Trend, fit
from ostraka.running_cluster import GATEWAY_NAME
from ostraka_worker.build.catalog import PRECISIONS
from tests.cluster import Cluster

WORKERS = 2
REQUESTS = 120
LARGE = 6
CAPACITY_S = 5.0
SHARE = 0.25
SAMPLE_S = 2.0
SETTLE_S = 60.0
PAUSE_S = (3.0, 12.0)
PHASE_S = 300.0
JUDGED_MINUTES = 20.0
GROWTH = 0.05
MB = 1e6
KINDS = ("supervisor", "gateway", "zygote", "worker")


@dataclass(frozen=True, slots=True)
class Growth:
    """Of a kind of process: resident memory in MB, and open files; both by the hour."""

    kind: str
    rss_mb: float
    most_rss_mb: float
    rss_mb_an_hour: float
    rss_error: float
    files: float
    files_an_hour: float
    samples: int

    def grows(self, hours: float) -> bool:
        return self.rss_mb_an_hour * hours > GROWTH * self.rss_mb or self.files_an_hour * hours > GROWTH * self.files


@dataclass(slots=True)
class Processes:
    """Memory and open files of a server's processes, by kind and pid, as time goes."""

    supervisor: psutil.Process
    memory: dict[str, dict[int, list[Point]]] = field(default_factory=lambda: defaultdict(lambda: defaultdict(list)))
    files: dict[str, dict[int, list[Point]]] = field(default_factory=lambda: defaultdict(lambda: defaultdict(list)))

    def sample(self, workers: set[int]) -> None:
        now = time.monotonic()
        for each in [self.supervisor, *self.supervisor.children(recursive=True)]:
            with contextlib.suppress(psutil.Error):
                kind = self._kind(each, workers)
                self.memory[kind][each.pid].append((now, each.memory_info().rss))
                self.files[kind][each.pid].append((now, count_files(each)))

    def growth(self) -> list[Growth]:
        return [self._fit(kind) for kind in KINDS if self.memory[kind]]

    def _kind(self, process: psutil.Process, workers: set[int]) -> str:
        if process == self.supervisor:
            return "supervisor"
        if GATEWAY_NAME.fullmatch(process.name()):
            return "gateway"
        return "worker" if process.pid in workers else "zygote"

    def _fit(self, kind: str) -> Growth:
        memory: Trend = fit(self.memory[kind].values(), SETTLE_S)
        files: Trend = fit(self.files[kind].values(), SETTLE_S)
        hour = 3600 / MB
        return Growth(
            kind,
            memory.mean / MB,
            memory.most / MB,
            memory.per_s * hour,
            memory.error_per_s * hour,
            files.mean,
            files.per_s * 3600,
            memory.points,
        )


def count_files(process: psutil.Process) -> int:
    """Without the clients' connections: how many those are is for the clients to say."""
    open_ones = sum(each.status == psutil.CONN_ESTABLISHED for each in process.net_connections("tcp"))
    return process.num_fds() - open_ones


async def watch(cluster: Cluster, processes: Processes) -> None:
    """A gateway that is being replaced cannot say which its workers are: that sample is left out."""
    loop = asyncio.get_running_loop()
    while True:
        with contextlib.suppress(Exception):
            health = await loop.run_in_executor(None, cluster.health)
            processes.sample({worker["pid"] for worker in health["workers"]})
        await asyncio.sleep(SAMPLE_S)


async def run(cluster: Cluster, values: argparse.Namespace) -> tuple[SteadyLoad, Counter[str], Processes, float]:
    clients, rng = Clients(cluster.url), random.Random(values.seed)
    asked, large = await clients.learn(make_asked(REQUESTS)), await clients.learn(make_large(LARGE))
    rate = values.rate or SHARE * await measure_capacity(clients, asked, CAPACITY_S)
    print(f"{rate:.1f} requests/s for {values.minutes:g} minutes", flush=True)
    processes, injected = Processes(psutil.Process(cluster.process.pid)), Counter[str]()
    watching = asyncio.create_task(watch(cluster, processes))
    load = SteadyLoad(clients, asked, rate)
    faults = FaultRun(cluster, WORKERS, load, large)
    begun = time.monotonic()
    try:
        while (left_s := begun + 60 * values.minutes - time.monotonic()) > 0:
            await asyncio.sleep(min(left_s, rng.uniform(*PAUSE_S)))
            if is_peace(time.monotonic() - begun):
                continue
            case: Case = rng.choice(REAL)
            injected[case.name] += 1
            print(f"{time.monotonic() - begun:7.1f} s  {case.name}", flush=True)
            await faults.inject(case)
        await load.stop()
    finally:
        watching.cancel()
        await faults.close()
        await clients.close()
    return load, injected, processes, begun


def is_peace(elapsed_s: float) -> bool:
    """Who is killed every minute cannot show whether it grows."""
    return elapsed_s // PHASE_S % 2 == 1


def report(
    load: SteadyLoad, injected: Counter[str], processes: Processes, begun: float, values: argparse.Namespace
) -> int:
    kinds = Counter(each.kind for each in load.outcomes)
    twice = count_duplicates(load.outcomes)
    print(as_markdown(("fault", "times"), [(name, str(count)) for name, count in sorted(injected.items())]))
    for each in load.outcomes:
        if each.kind is not Kind.RIGHT:
            at = f"{each.due - begun:7.1f} s"
            print(f"{at}  {each.kind} after {each.latency_s:.2f} s, {each.retries} retries: {each.detail}")
    spoilt = len(load.outcomes) - kinds[Kind.RIGHT] + twice
    p99 = as_ms(percentile((each.latency_s for each in load.outcomes), 0.99))
    counts = ", ".join(f"{kind} {kinds[kind]}" for kind in Kind)
    print(f"{len(load.outcomes)} requests: {counts}, twice {twice}; p99 {p99}")
    growth = processes.growth()
    print(as_markdown(HEADINGS, [cells(each) for each in growth]))
    if values.json:
        about = {"minutes": values.minutes, "injected": injected, "outcomes": kinds, "twice": twice}
        Path(values.json).write_text(as_json(growth, **about), encoding="utf-8")
    is_judged = values.minutes >= JUDGED_MINUTES
    growing = [each.kind for each in growth if is_judged and each.grows(values.minutes / 60)]
    print(f"spoilt {spoilt}; growing: {', '.join(growing) or ('none' if is_judged else 'too short a run to say')}")
    return 1 if spoilt or growing else 0


HEADINGS = ("process", "RSS, mean", "most", "RSS an hour", "open files", "open files an hour", "samples")


def cells(each: Growth) -> Sequence[str]:
    return (
        each.kind,
        f"{each.rss_mb:.1f} MB",
        f"{each.most_rss_mb:.1f} MB",
        f"{each.rss_mb_an_hour:+.1f} ± {each.rss_error:.1f} MB",
        f"{each.files:.1f}",
        f"{each.files_an_hour:+.1f}",
        str(each.samples),
    )


def main() -> int:
    values = parse_arguments()
    with served(values.model, WORKERS) as cluster:
        try:
            return report(*asyncio.run(run(cluster, values)), values)
        finally:
            if values.log:
                Path(values.log).write_text("".join(cluster.lines), encoding="utf-8")


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", choices=(*PRECISIONS, FAKE), default="int8")
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--rate", type=float, help="requests a second (default: a quarter of the measured capacity)")
    parser.add_argument("--seed", type=int, default=1, help="of the faults' order and times")
    parser.add_argument("--json", metavar="FILE", help="where the figures are written as well")
    parser.add_argument("--log", metavar="FILE", help="where the server's log is written")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
