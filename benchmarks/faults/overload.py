"""Three times as much as can be answered: what is still answered, how soon, and how soon the rest is refused.

    make overload       or   python -m benchmarks.faults.overload --seconds 60 --times 3 --deadline-ms 2000

With fewer `--workers` than cores, client and gateway share the cores that are left, and leave the workers' alone.

Ends with 1 where less than 90 % of the capacity is answered in time, where the 99th percentile of what was let in is
beyond the deadline that was asked for, or that of the refusals at 50 ms or more.
"""

import argparse
import itertools
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass

from benchmarks.faults.cores import Spent, leave_workers_alone
from benchmarks.faults.outcomes import percentile
from benchmarks.faults.raw_client import Ended, RawClient
from benchmarks.faults.serving import FAKE, served
from benchmarks.faults.table import as_markdown, as_ms
from benchmarks.load import make_bodies
from benchmarks.raw_http import post
from ostraka_worker.build.catalog import PRECISIONS
from tests.cluster import Cluster

IN_FLIGHT = 16
CAPACITY_S = 8.0
CAPACITY_DEADLINE_MS = 60_000
PATIENCE_S = 1.0
BODIES = 4000
"""Each another, so that no two share an execution or a state."""
GOODPUT_SHARE = 0.9
REFUSED_S = 0.05
REFUSED = 529


@dataclass(frozen=True, slots=True)
class Overload:
    """Requests and answers a second; times in seconds. `let_in` were not refused, whatever then became of them."""

    capacity: float
    offered: float
    goodput: float
    let_in: int
    refused: int
    late: int
    others: int
    let_in_p99_s: float
    refused_p99_s: float
    client_late_p99_s: float
    deadline_s: float

    def broken(self) -> list[str]:
        found = []
        if self.goodput < GOODPUT_SHARE * self.capacity:
            found.append(f"goodput is {self.goodput / self.capacity:.0%} of the capacity")
        if not self.let_in_p99_s <= self.deadline_s:
            found.append(f"p99 of what was let in is {as_ms(self.let_in_p99_s)}")
        if not self.refused_p99_s < REFUSED_S:
            found.append(f"p99 of the refusals is {as_ms(self.refused_p99_s)}")
        if self.others:
            found.append(f"{self.others} answers were neither right nor 529 nor 504")
        return found


def summarize(told: list[Ended], capacity: float, seconds: float, deadline_s: float) -> Overload:
    refused = [each for each in told if each.status == REFUSED]
    let_in = [each for each in told if each.status in (200, 504)]
    in_time = [each for each in let_in if each.status == 200 and each.ended - each.due <= deadline_s]
    # The queue that is left at the end is worked off after it: that time counts too.
    answering_s = max((each.ended for each in told), default=0.0) - min((each.due for each in told), default=0.0)
    return Overload(
        capacity=capacity,
        offered=len(told) / seconds,
        goodput=len(in_time) / max(seconds, answering_s),
        let_in=len(let_in),
        refused=len(refused),
        late=len(let_in) - len(in_time),
        others=len(told) - len(refused) - len(let_in),
        let_in_p99_s=percentile((each.ended - each.due for each in let_in), 0.99),
        refused_p99_s=percentile((each.ended - each.sent for each in refused), 0.99),
        client_late_p99_s=percentile((each.sent - each.due for each in told), 0.99),
        deadline_s=deadline_s,
    )


def measure_capacity(client: RawClient, requests: Iterator[bytes], seconds: float) -> float:
    """Answers a second of a closed loop that never lacks work."""
    begun, answered = time.perf_counter(), 0
    for _ in range(IN_FLIGHT):
        client.send(next(requests), begun)
    while client.in_flight:
        for ended in client.wait(PATIENCE_S):
            answered += ended.status == 200
            if ended.ended < begun + seconds:
                client.send(next(requests), ended.ended)
    return answered / (time.perf_counter() - begun)


def offer(client: RawClient, requests: Iterator[bytes], rate: float, seconds: float) -> list[Ended]:
    """An open loop: each is sent when it is due, whatever became of those before."""
    told: list[Ended] = []
    begun, number, count = time.perf_counter(), 0, int(rate * seconds)
    while number < count or client.in_flight:
        due = begun + number / rate
        while number < count and due <= time.perf_counter():
            client.send(next(requests), due)
            number += 1
            due = begun + number / rate
        told += client.wait(max(0.0, due - time.perf_counter()) if number < count else PATIENCE_S)
    return told


def run(cluster: Cluster, values: argparse.Namespace) -> Overload:
    client = RawClient(cluster.url)
    patient, hurried = (make_requests(cluster.url, each) for each in (CAPACITY_DEADLINE_MS, values.deadline_ms))
    measure_capacity(client, patient, CAPACITY_S / 4)
    at_capacity = Spent(cluster)
    before = measure_capacity(client, patient, CAPACITY_S)
    at_capacity.stop()
    beyond = Spent(cluster)
    told = offer(client, hurried, values.times * before, values.seconds)
    beyond.stop()
    after = measure_capacity(client, patient, CAPACITY_S)
    client.close()
    print(f"capacity {before:.1f} requests/s before, {after:.1f} after")
    print(f"of a core, at capacity: {at_capacity}; beyond it: {beyond}")
    return summarize(told, (before + after) / 2, values.seconds, values.deadline_ms / 1000)


def make_requests(url: str, deadline_ms: int) -> Iterator[bytes]:
    return itertools.cycle([post(url, body, x_deadline_ms=str(deadline_ms)) for body in make_bodies(BODIES)])


def main() -> int:
    values = parse_arguments()
    with served(values.model, values.workers) as cluster:
        leave_workers_alone(cluster)
        seen = run(cluster, values)
    rows = [
        ("capacity", f"{seen.capacity:.1f} requests/s"),
        ("offered", f"{seen.offered:.1f} requests/s"),
        ("answered in time", f"{seen.goodput:.1f} requests/s, {seen.goodput / seen.capacity:.0%} of the capacity"),
        ("let in", f"{seen.let_in}, of which {seen.late} late"),
        ("p99 of these", f"{as_ms(seen.let_in_p99_s)}, of {as_ms(seen.deadline_s)} asked for"),
        ("refused (529)", str(seen.refused)),
        ("p99 of these", as_ms(seen.refused_p99_s)),
        ("the client's own lateness, p99", as_ms(seen.client_late_p99_s)),
    ]
    print(as_markdown(("overload", f"{values.times:g} times the capacity for {values.seconds:g} s"), rows))
    broken = seen.broken()
    print(f"NOT KEPT: {'; '.join(broken)}" if broken else "kept")
    return 1 if broken else 0


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", choices=(*PRECISIONS, FAKE), default="int8")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--times", type=float, default=3.0, help="the capacity")
    parser.add_argument("--deadline-ms", type=int, default=2000, help="asked for with each request")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
