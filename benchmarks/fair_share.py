"""What one costly client costs the others: their p99 beside it against their p99 alone, in interleaved rounds.

make bench-fair      or   python -m benchmarks.fair_share --engine fake --rounds 3 --kinds "255 options"
"""

import argparse
import asyncio
import itertools
import math
import tempfile
import time
from pathlib import Path

from benchmarks.costly import KINDS, costly_client
from benchmarks.load import make_bodies
from benchmarks.raw_http import Arrivals, arrive, post
from ostraka_worker.build.builder import ensure_embedded
from ostraka_worker.build.progress import for_stderr
from tests.cluster import running
from tests.fake_model import make_fake_model

WARM_S = 1.0
"""For the costly client to start, and to be in the middle of it."""
REST_S = 0.3
"""For the server to let go of what nobody waits for."""
GOAL = 2.0


def main() -> None:
    values = parse_arguments()
    with (
        tempfile.TemporaryDirectory() as scratch,
        running(model(values, Path(scratch)), f"--workers={values.workers}") as found,
    ):
        seeds = itertools.count()
        alone, beside = Arrivals(), {kind: Arrivals() for kind in values.kinds}
        measure(found.url, values, next(seeds), Arrivals())
        for number in range(values.rounds):
            for kind in values.kinds:
                measure(found.url, values, next(seeds), alone)
                with costly_client(found.url, kind):
                    time.sleep(WARM_S)
                    measure(found.url, values, next(seeds), beside[kind])
                time.sleep(REST_S)
            print(f"after {number + 1} of {values.rounds} rounds", flush=True)
            report("nobody", alone, alone)
            for kind, arrivals in beside.items():
                report(kind, alone, arrivals)


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--engine", choices=("int8", "fp32", "fake"), default="int8")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--requests", type=int, default=40, help="ordinary ones at a time")
    parser.add_argument("--per-s", type=float, default=10.0, help="ordinary requests a second, of Poisson arrivals")
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=KINDS)
    return parser.parse_args()


def model(values: argparse.Namespace, scratch: Path) -> Path:
    """The fake engine's tokens are bytes, and its calls sleep: what is left is the gateway's share, and the turns."""
    if values.engine == "fake":
        return make_fake_model(scratch / "model", ms_per_token=0.03).path
    return ensure_embedded(Path("~/.cache/ostraka").expanduser(), values.engine, for_stderr()).path


def measure(url: str, values: argparse.Namespace, seed: int, into: Arrivals) -> None:
    """Other states each time: none of them is kept."""
    requests = [post(url, body) for body in make_bodies(values.requests, seed)]
    found = asyncio.run(arrive(url, requests, values.per_s, seed))
    into.latencies_s += found.latencies_s
    into.refused += found.refused


def report(kind: str, alone: Arrivals, beside: Arrivals) -> None:
    found = [f"{percentile(beside, share):6.0f}" for share in (50, 90, 99)]
    ratio = percentile(beside, 99) / percentile(alone, 99)
    verdict = "" if ratio <= GOAL else "  over the goal"
    refused = f"  {beside.refused} refused" if beside.refused else ""
    print(f"beside {kind:33} p50, p90, p99 {' '.join(found)} ms  p99 {ratio:.2f}x{verdict}{refused}", flush=True)


def percentile(arrivals: Arrivals, share: float) -> float:
    """In milliseconds."""
    ordered = sorted(arrivals.latencies_s)
    return ordered[max(0, math.ceil(len(ordered) * share / 100) - 1)] * 1000


if __name__ == "__main__":
    main()
