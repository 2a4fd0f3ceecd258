"""Three times as much as can be answered: what is still answered, how soon, and how soon the rest is refused.

    make overload       or   python -m benchmarks.faults.overload --seconds 60 --times 3 --deadline-ms 2000

With fewer `--workers` than cores, client and gateway share the cores that are left, and leave the workers' alone. Where
they share the workers' cores, what the client takes is no fault of the server's: so the answers are also told for each
second of a core that the server itself had, at capacity and beyond it. That is no goal, nor part of one.

Ends with 1 where less than 90 % of the capacity is answered in time, where the 99th percentile of what was let in is
beyond the deadline that was asked for, or that of the refusals at 50 ms or more.
"""

import argparse
import itertools
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from benchmarks.faults.cores import CLIENT, Spent, leave_workers_alone
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
COLLECT_S = 0.003
"""How late an answer may be looked at: a client that wakes for each takes twice the time from the workers."""
FIFTHS = 5
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


@dataclass(frozen=True, slots=True)
class Phase:
    """What was answered in time, and whose the cores' time was meanwhile."""

    answered: int
    spent: Spent

    @property
    def per_s(self) -> float:
        return self.answered / self.spent.wall_s

    @property
    def per_server_s(self) -> float:
        """For each second of a core that workers and gateways had together."""
        return self.answered / self.spent.server_s


def measure_capacity(client: RawClient, requests: Iterator[bytes], seconds: float) -> int:
    """How many answers a closed loop has that never lacks work."""
    begun, answered = time.perf_counter(), 0
    for _ in range(IN_FLIGHT):
        client.send(next(requests), begun)
    while client.in_flight:
        for ended in client.wait(PATIENCE_S):
            answered += ended.status == 200
            if ended.ended < begun + seconds:
                client.send(next(requests), ended.ended)
    return answered


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
        if number < count:
            time.sleep(max(0.0, min(COLLECT_S, due - time.perf_counter())))
        told += client.wait(0.0 if number < count else PATIENCE_S)
    return told


def by_fifths(told: list[Ended]) -> list[float]:
    """Answers a second, while requests were offered: whether it was worse at first, or the machine changed."""
    begun, fifth_s = told_from(told), (max(each.due for each in told) - told_from(told)) / FIFTHS
    counted = Counter(int((each.ended - begun) / fifth_s) for each in told if each.status == 200)
    return [counted[number] / fifth_s for number in range(FIFTHS)]


def told_from(told: list[Ended]) -> float:
    return min(each.due for each in told)


def run(cluster: Cluster, values: argparse.Namespace) -> tuple[Overload, list[tuple[str, str]]]:
    """The figures that are judged, and those that explain them."""
    client = RawClient(cluster.url)
    patient = make_requests(cluster.url, CAPACITY_DEADLINE_MS, seed=1)
    hurried = make_requests(cluster.url, values.deadline_ms, seed=2)
    measure_capacity(client, patient, CAPACITY_S / 4)
    before = at_capacity(cluster, client, patient)
    spent = Spent(cluster)
    told = offer(client, hurried, values.times * before.per_s, values.seconds)
    spent.stop()
    after = at_capacity(cluster, client, patient)
    client.close()
    seen = summarize(told, (before.per_s + after.per_s) / 2, values.seconds, values.deadline_ms / 1000)
    return seen, explain(before, Phase(seen.let_in - seen.late, spent), after, told)


def at_capacity(cluster: Cluster, client: RawClient, patient: Iterator[bytes]) -> Phase:
    spent = Spent(cluster)
    answered = measure_capacity(client, patient, CAPACITY_S)
    spent.stop()
    return Phase(answered, spent)


def explain(before: Phase, beyond: Phase, after: Phase, told: list[Ended]) -> list[tuple[str, str]]:
    at = (before.answered + after.answered) / (before.spent.server_s + after.spent.server_s)
    client = [each.spent.share(CLIENT) for each in (before, beyond, after)]
    return [
        ("capacity before and after", f"{before.per_s:.1f}, {after.per_s:.1f} requests/s"),
        ("answered by fifths of the time", ", ".join(f"{each:.0f}" for each in by_fifths(told))),
        ("of a core, at capacity", f"{before.spent}; {after.spent}"),
        ("of a core, beyond it", str(beyond.spent)),
        (
            "answers for a second of a core that the server had",
            f"{beyond.per_server_s:.1f}, {beyond.per_server_s / at:.0%} of those at capacity",
        ),
        ("the client took more of a core than at capacity", f"{client[1] - (client[0] + client[2]) / 2:.1%}"),
    ]


def make_requests(url: str, deadline_ms: int, seed: int) -> Iterator[bytes]:
    return itertools.cycle([post(url, body, x_deadline_ms=str(deadline_ms)) for body in make_bodies(BODIES, seed)])


def main() -> int:
    values = parse_arguments()
    with served(values.model, values.workers) as cluster:
        leave_workers_alone(cluster)
        seen, explained = run(cluster, values)
    rows = [
        ("capacity", f"{seen.capacity:.1f} requests/s"),
        ("offered", f"{seen.offered:.1f} requests/s"),
        ("answered in time", f"{seen.goodput:.1f} requests/s, {seen.goodput / seen.capacity:.0%} of the capacity"),
        ("let in", f"{seen.let_in}, of which {seen.late} late"),
        ("p99 of these", f"{as_ms(seen.let_in_p99_s)}, of {as_ms(seen.deadline_s)} asked for"),
        ("refused (529)", str(seen.refused)),
        ("p99 of these", as_ms(seen.refused_p99_s)),
        ("the client's own lateness, p99", as_ms(seen.client_late_p99_s)),
        *explained,
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
