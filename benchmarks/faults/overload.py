"""Three times as much as can be answered: what is still answered, how soon, and how soon the rest is refused.

    make overload       or   python -m benchmarks.faults.overload --seconds 60 --times 3 --deadline-ms 2000

With fewer `--workers` than cores, client and gateway share the cores that are left, and leave the workers' alone.

Ends with 1 where less than 90 % of the capacity is answered in time, where the 99th percentile of what was let in is
beyond the deadline that was asked for, or that of the refusals at 50 ms or more.
"""

import argparse
import asyncio
import itertools
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass

import uvloop

from benchmarks.faults.asking import PATH
from benchmarks.faults.cores import Spent, leave_workers_alone
from benchmarks.faults.outcomes import percentile
from benchmarks.faults.serving import FAKE, served
from benchmarks.faults.table import as_markdown, as_ms
from benchmarks.faults.wire import Answer, Pool
from benchmarks.load import make_bodies
from ostraka_worker.build.catalog import PRECISIONS
from tests.cluster import Cluster

IN_FLIGHT = 16
CAPACITY_S = 8.0
BODIES = 4000
"""Each another, so that no two share an execution or a state."""
GOODPUT_SHARE = 0.9
REFUSED_S = 0.05
REFUSED = 529


@dataclass(frozen=True, slots=True)
class Told:
    """`due`: when it was to be sent; `sent`: when it was."""

    due: float
    sent: float
    ended: float
    answer: Answer


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


def summarize(told: list[Told], capacity: float, seconds: float, deadline_s: float) -> Overload:
    refused = [each for each in told if each.answer.status == REFUSED]
    let_in = [each for each in told if each.answer.status in (200, 504)]
    in_time = [each for each in let_in if each.answer.status == 200 and each.ended - each.due <= deadline_s]
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


async def measure_capacity(pool: Pool, bodies: Iterator[bytes], seconds: float) -> float:
    """Answers a second of a closed loop that never lacks work."""
    begun, answered = time.perf_counter(), 0

    async def work() -> None:
        nonlocal answered
        while time.perf_counter() < begun + seconds:
            answer = await pool.ask("POST", PATH, next(bodies), x_deadline_ms="60000")
            answered += answer.status == 200

    await asyncio.gather(*(work() for _ in range(IN_FLIGHT)))
    return answered / (time.perf_counter() - begun)


async def offer(pool: Pool, bodies: Iterator[bytes], rate: float, seconds: float, deadline_s: float) -> list[Told]:
    """An open loop: each is sent when it is due, whatever became of those before."""

    async def ask(due: float) -> Told:
        sent = time.perf_counter()
        answer = await pool.ask("POST", PATH, next(bodies), x_deadline_ms=str(int(deadline_s * 1000)))
        return Told(due, sent, time.perf_counter(), answer)

    begun, asking = time.perf_counter(), []
    for number in itertools.count():
        due = begun + number / rate
        if due > begun + seconds:
            break
        await asyncio.sleep(max(0.0, due - time.perf_counter()))
        asking.append(asyncio.create_task(ask(due)))
    return list(await asyncio.gather(*asking))


async def run(cluster: Cluster, values: argparse.Namespace) -> Overload:
    pool, bodies = Pool(cluster.url), itertools.cycle(make_bodies(BODIES))
    await measure_capacity(pool, bodies, CAPACITY_S / 4)
    at_capacity = Spent(cluster)
    before = await measure_capacity(pool, bodies, CAPACITY_S)
    at_capacity.stop()
    deadline_s = values.deadline_ms / 1000
    beyond = Spent(cluster)
    told = await offer(pool, bodies, values.times * before, values.seconds, deadline_s)
    beyond.stop()
    after = await measure_capacity(pool, bodies, CAPACITY_S)
    print(f"capacity {before:.1f} requests/s before, {after:.1f} after")
    print(f"of a core, at capacity: {at_capacity}; beyond it: {beyond}")
    return summarize(told, (before + after) / 2, values.seconds, deadline_s)


def main() -> int:
    values = parse_arguments()
    with served(values.model, values.workers) as cluster:
        leave_workers_alone(cluster)
        seen = uvloop.run(run(cluster, values))
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
