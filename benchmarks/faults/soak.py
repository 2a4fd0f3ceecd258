"""Mixed load for half an hour with random faults: nothing lost, and neither memory nor open files that grow.

    make soak       or   python -m benchmarks.faults.soak --minutes 30 --seed 1

       first third            second third             last third
    faults of all kinds    workers and links alone    gateways alone

Who is killed every minute cannot show whether it grows: so each kind has a third in which the others break around it.
Memory and files are compared within the long lives that this makes, and between successive lives at the same age
(`trend.py`). Ends with 1 if a request was lost, failed, wrong or answered twice; and, in runs of 20 minutes and more,
if a kind surely grows by more than 5 % of its mean.
"""

import argparse
import asyncio
import math
import random
import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import psutil

from benchmarks.faults.asking import Clients, SteadyLoad, make_asked, make_large, measure_capacity
from benchmarks.faults.outcomes import Kind, count_duplicates, percentile
from benchmarks.faults.processes import KindGrowth, Processes
from benchmarks.faults.run import REAL, Case, FaultRun
from benchmarks.faults.serving import FAKE, served
from benchmarks.faults.table import as_json, as_markdown, as_ms
from benchmarks.faults.trend import Gain, Verdict
from ostraka_worker.build.catalog import PRECISIONS
from tests.cluster import Cluster

WORKERS = 2
REQUESTS = 120
LARGE = 6
CAPACITY_S = 5.0
SHARE = 0.25
SAMPLE_S = 2.0
PAUSE_S = (3.0, 12.0)
GATEWAY_PAUSE_S = (20.0, 40.0)
"""Where only gateways end: their lives are long enough to be compared."""
THIRDS = 3
JUDGED_MINUTES = 20.0


async def watch(processes: Processes) -> None:
    """In a thread: the clients are not to wait for it."""
    while True:
        await asyncio.to_thread(processes.sample)
        await asyncio.sleep(SAMPLE_S)


async def run(cluster: Cluster, values: argparse.Namespace) -> tuple[SteadyLoad, Counter[str], Processes, float]:
    clients, rng = Clients(cluster.url), random.Random(values.seed)
    asked, large = await clients.learn(make_asked(REQUESTS)), await clients.learn(make_large(LARGE))
    rate = values.rate or SHARE * await measure_capacity(clients, asked, CAPACITY_S)
    print(f"{rate:.1f} requests/s for {values.minutes:g} minutes", flush=True)
    processes, injected = Processes(psutil.Process(cluster.process.pid)), Counter[str]()
    watching = asyncio.create_task(watch(processes))
    load = SteadyLoad(clients, asked, rate)
    faults = FaultRun(cluster, WORKERS, load, large)
    begun = time.monotonic()
    try:
        while (left_s := begun + 60 * values.minutes - time.monotonic()) > 0:
            _, pause_s = phase(1 - left_s / 60 / values.minutes)
            await asyncio.sleep(min(left_s, rng.uniform(*pause_s)))
            cases, _ = phase((time.monotonic() - begun) / 60 / values.minutes)
            case = rng.choice(cases)
            injected[case.name] += 1
            print(f"{time.monotonic() - begun:7.1f} s  {case.name}", flush=True)
            await faults.inject(case)
        await load.stop()
    finally:
        watching.cancel()
        await faults.close()
        await clients.close()
    return load, injected, processes, begun


def phase(share: float) -> tuple[Sequence[Case], tuple[float, float]]:
    """What may happen once that share of the time is over, and how long the pauses are."""
    third = int(share * THIRDS)
    if third == 0:
        return REAL, PAUSE_S
    is_gateways = third > 1
    cases = [case for case in REAL if case.ends_gateways is is_gateways]
    return cases, GATEWAY_PAUSE_S if is_gateways else PAUSE_S


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
    verdicts = {each.kind: verdict(each, values.minutes) for each in growth}
    print(f"spoilt {spoilt}; {summary(verdicts)}")
    return 1 if spoilt or Verdict.GROWS in verdicts.values() else 0


def verdict(each: KindGrowth, minutes: float) -> Verdict:
    if minutes < JUDGED_MINUTES:
        return Verdict.UNCLEAR
    both = {each.rss.judge(minutes / 60), each.files.judge(minutes / 60)}
    return next(worst for worst in (Verdict.GROWS, Verdict.UNCLEAR, Verdict.FLAT) if worst in both)


def summary(verdicts: dict[str, Verdict]) -> str:
    found = {each: [kind for kind, its in verdicts.items() if its is each] for each in Verdict}
    return "; ".join(f"{each}: {', '.join(kinds) or 'none'}" for each, kinds in found.items())


HEADINGS = (
    "process",
    "lives",
    "RSS, mean",
    "most",
    "an hour, within lives",
    "between lives",
    "open files",
    "an hour, within lives",
    "between lives",
)


def cells(each: KindGrowth) -> Sequence[str]:
    rss, files = each.rss, each.files
    return (
        each.kind,
        str(each.lives),
        f"{rss.mean:.1f} MB",
        f"{rss.most:.1f} MB",
        as_gain(rss.within),
        as_gain(rss.between, rss.age_s),
        f"{files.mean:.1f}",
        as_gain(files.within),
        as_gain(files.between, files.age_s),
    )


def as_gain(gain: Gain, age_s: float = math.nan) -> str:
    if not gain.gains:
        return "-"
    at = "" if math.isnan(age_s) else f" at {age_s:g} s"
    return f"{gain.rate:+.1f} ± {gain.doubt:.1f}{at}"


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
