"""Steady load from real clients on a real server, each fault in turn, and what became of every request.

    make faults         or   python -m benchmarks.faults --model fp32 --json faults.json

Ends with 1 if a request was lost, failed, answered otherwise than before, or answered twice.
"""

import argparse
import asyncio
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.faults.asking import Clients, SteadyLoad, make_asked, make_large, measure_capacity
from benchmarks.faults.injecting import NOT_INJECTED
from benchmarks.faults.outcomes import Row
from benchmarks.faults.run import DRAIN, FAKE, REAL, Case, FaultRun
from benchmarks.faults.serving import FAKE as FAKE_MODEL
from benchmarks.faults.serving import served
from benchmarks.faults.table import HEADINGS, as_json, as_markdown, cells
from ostraka_worker.build.catalog import PRECISIONS
from tests.cluster import Cluster

WORKERS = 2
CAPACITY_S = 4.0
SHARE = 0.3
"""Of what was measured: one worker alone can answer it, also on a machine that is a little slower for a while."""
REQUESTS = 60
LARGE = 6


def main() -> int:
    values = parse_arguments()
    rows = run_on(values.model, (*REAL, DRAIN), values) + run_on(FAKE_MODEL, FAKE, values)
    print(as_markdown(HEADINGS, [cells(row) for row in rows]))
    if values.json:
        Path(values.json).write_text(as_json(rows, model=values.model, workers=WORKERS), encoding="utf-8")
    broken = [row.fault for row in rows if not row.is_kept or NOT_INJECTED in row.note]
    print(f"NOT KEPT: {', '.join(broken)}" if broken else "nothing lost, nothing wrong, nothing twice")
    return 1 if broken else 0


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", choices=(*PRECISIONS, FAKE_MODEL), default="int8")
    parser.add_argument("--share", type=float, default=SHARE, help="of the measured capacity that is asked for")
    parser.add_argument("--only", metavar="TEXT", default="", help="only the faults whose names have it")
    parser.add_argument("--json", metavar="FILE", help="where the rows are written as well")
    return parser.parse_args()


def run_on(model: str, cases: Sequence[Case], values: argparse.Namespace) -> list[Row]:
    chosen = [case for case in cases if values.only in case.name]
    if not chosen:
        return []
    with served(model, WORKERS) as cluster:
        return asyncio.run(run_cases(cluster, chosen, values.share))


async def run_cases(cluster: Cluster, cases: Sequence[Case], share: float) -> list[Row]:
    clients = Clients(cluster.url)
    try:
        asked, large = await clients.learn(make_asked(REQUESTS)), await clients.learn(make_large(LARGE))
        capacity = await measure_capacity(clients, asked, CAPACITY_S)
        print(f"capacity {capacity:.1f} requests/s, of which {share:.0%} are asked for", flush=True)
        return await FaultRun(cluster, WORKERS, SteadyLoad(clients, asked, share * capacity), large).run(cases)
    finally:
        await clients.close()


if __name__ == "__main__":
    sys.exit(main())
