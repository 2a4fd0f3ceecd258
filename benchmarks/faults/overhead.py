"""Where a decision's time goes besides the model, in microseconds a step, as `Server-Timing` has it; one at a time.

    python -m benchmarks.faults.overhead --requests 400

`queue` is all between tokens and answer that is not inference: filing, the wire there and back, the worker's own work.
"""

import argparse
import re
import sys
from collections import defaultdict

import uvloop

from benchmarks.faults.asking import PATH
from benchmarks.faults.outcomes import percentile
from benchmarks.faults.serving import FAKE, served
from benchmarks.faults.table import as_markdown
from benchmarks.faults.wire import Connection
from benchmarks.load import make_bodies
from ostraka_worker.build.catalog import PRECISIONS

STEPS = ("parse", "validate", "tokenize", "queue", "respond")
WARM_UP = 50
SEGMENT = re.compile(r"(\w+);dur=([\d.]+)")


def read_timing(header: str) -> dict[str, float]:
    """Microseconds by step."""
    return {step: float(ms) * 1000 for step, ms in SEGMENT.findall(header)}


async def run(url: str, requests: int) -> dict[str, list[float]]:
    connection, found = Connection(url), defaultdict(list)
    for number, body in enumerate(make_bodies(WARM_UP + requests)):
        answer = await connection.ask("POST", PATH, body)
        assert answer.status == 200, answer
        if number >= WARM_UP:
            timing = read_timing(answer.headers["server-timing"])
            for step, us in timing.items():
                found[step].append(us)
            found["all but inference"].append(sum(timing[step] for step in STEPS))
    connection.close()
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", choices=(*PRECISIONS, FAKE), default="int8")
    parser.add_argument("--requests", type=int, default=400)
    values = parser.parse_args()
    with served(values.model, 1) as cluster:
        found = uvloop.run(run(cluster.url, values.requests))
    rows = [
        (step, *(f"{percentile(found[step], share):,.0f} us" for share in (0.5, 0.9, 0.99)))
        for step in (*STEPS, "all but inference", "inference")
    ]
    print(as_markdown(("step", "median", "p90", "p99"), rows))
    return 0


if __name__ == "__main__":
    sys.exit(main())
