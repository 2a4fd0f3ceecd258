"""What affinity gains on repeated states: the gateway's own routing in front of simulated workers, in simulated time,
with it and without it. Hit rate and latency, with and without hot keys.

    python -m benchmarks.affinity
"""

import argparse
import heapq
import itertools
import random
import statistics
from collections import OrderedDict
from dataclasses import dataclass, field

from ostraka_gateway import hearing
from ostraka_gateway.in_flight import InFlight
from ostraka_gateway.parts import Done, Request, Send
from ostraka_gateway.roster import Roster
from ostraka_gateway.routing import state_of
from ostraka_gateway.waiting_line import due
from ostraka_gateway.worker import Worker
from ostraka_shared.messages import TOKEN_BYTES, Hello, Ready, Result, Started, Work

STATE_TOKENS, QUESTION_TOKENS = 400, 20
BATCH_TOKENS, CREDIT_TOKENS = 256, 512
KEPT_STATES, KEPT_TOKENS = 16, 8192
CALL_S, TOKEN_S = 0.020, 0.001
"""As int8 on one core: 500 tokens 515 ms, 20 tokens 35 to 60 ms."""


@dataclass(slots=True)
class Bench:
    """A worker: reads what it holds in order, in batches, and keeps states."""

    worker: Worker
    queue: list[Work] = field(default_factory=list)
    kept: OrderedDict[bytes, None] = field(default_factory=OrderedDict)
    is_busy: bool = False
    hits: int = 0

    def next_batch(self) -> tuple[list[Work], int]:
        """The works, and the tokens that are really read."""
        batch = [self.queue.pop(0)]
        while self.queue and sum(work.tokens for work in [*batch, self.queue[0]]) <= BATCH_TOKENS:
            batch.append(self.queue.pop(0))
        return batch, sum(self._tokens(work) for work in batch)

    def _tokens(self, work: Work) -> int:
        is_kept = work.prefix in self.kept
        self.hits += is_kept
        self.kept[work.prefix] = None
        self.kept.move_to_end(work.prefix)
        while len(self.kept) > min(KEPT_STATES, KEPT_TOKENS // STATE_TOKENS):
            self.kept.popitem(last=False)
        return QUESTION_TOKENS if is_kept else STATE_TOKENS + QUESTION_TOKENS


class Simulation:
    def __init__(self, workers: int, *, has_affinity: bool) -> None:
        self.now = 0.0
        self.has_affinity = has_affinity
        self.roster = Roster("c", "f", 0.0)
        self.table = InFlight(self.roster)
        self.benches: dict[Worker, Bench] = {}
        self.events: list[tuple[float, int, str, object]] = []
        self.order = itertools.count()
        self.latencies: list[float] = []
        for number in range(workers):
            hello = Hello("c", f"w{number}", 1, "f", "h", 1, (number,))
            worker = self.roster.join(hello.worker_id.encode(), hello, 0.0)
            hearing.ready(worker, Ready("simulated", CREDIT_TOKENS, 1 / TOKEN_S))
            self.benches[worker] = Bench(worker)

    def at(self, when: float, kind: str, what: object) -> None:
        heapq.heappush(self.events, (when, next(self.order), kind, what))

    def run(self) -> None:
        while self.events:
            self.now, _, kind, what = heapq.heappop(self.events)
            if kind == "ask":
                assert isinstance(what, Request)
                self.table.add(what)
            else:
                self._end_call(*what)  # type: ignore[misc]
            for each in self.table.sending.pump(self.now):
                assert isinstance(each, Send)
                self.benches[each.worker].queue.append(each.work)
            for bench in self.benches.values():
                self._begin_call(bench)

    def _begin_call(self, bench: Bench) -> None:
        if bench.is_busy or not bench.queue:
            return
        batch, tokens = bench.next_batch()
        bench.is_busy = True
        hearing.heard(bench.worker, self.roster.pace, self.now)
        hearing.started(bench.worker, Started(tuple(work.request_id for work in batch), tokens))
        self.at(self.now + CALL_S + TOKEN_S * tokens, "end", (bench, batch))

    def _end_call(self, bench: Bench, batch: list[Work]) -> None:
        bench.is_busy = False
        hearing.heard(bench.worker, self.roster.pace, self.now)
        for work in batch:
            for each in self.table.answered(bench.worker, Result(work.request_id, work.attempt, (0.5,), 0.0, 0.0)):
                if isinstance(each, Done):
                    self.latencies.append(self.now - each.request.admitted)


class Someone:
    def done(self) -> bool:
        return False


def ask(simulation: Simulation, number: int, key: int, when: float) -> None:
    prefix = key.to_bytes(TOKEN_BYTES, "little") * STATE_TOKENS
    question = (number.to_bytes(TOKEN_BYTES, "little") * QUESTION_TOKENS,)
    deadline = when + 60.0
    due_at = due(when, deadline)
    added = (QUESTION_TOKENS,)
    request = Request(str(number), prefix, question, STATE_TOKENS, added, deadline, when, due_at, lambda _: None)
    request.waiters["someone"] = Someone()
    if simulation.has_affinity:
        request.state = state_of(prefix, STATE_TOKENS, TOKEN_BYTES)
    simulation.at(when, "ask", request)


def simulate(workers: int, rate: float, weights: list[float], requests: int, *, has_affinity: bool) -> list[float]:
    """Hit rate, median and 99th percentile in ms."""
    rng = random.Random(7)
    simulation, when = Simulation(workers, has_affinity=has_affinity), 0.0
    for number, key in enumerate(rng.choices(range(len(weights)), weights, k=requests)):
        when += rng.expovariate(rate)
        ask(simulation, number, key, when)
    simulation.run()
    assert len(simulation.latencies) == requests
    hits = sum(bench.hits for bench in simulation.benches.values())
    cuts = statistics.quantiles(simulation.latencies, n=100)
    return [100 * hits / requests, 1000 * cuts[49], 1000 * cuts[98]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--requests", type=int, default=6000)
    values = parser.parse_args()
    states = 12 * values.workers
    workloads = {
        f"{states} states, even": [1.0] * states,
        f"{states} states, Zipf": [1 / (rank + 1) for rank in range(states)],
        f"{states} states, one asked half the time": [float(states)] + [1.0] * states,
        "every state new": [1.0] * 10 * values.requests,
    }
    print("workload | requests/s | hits, p50, p99 plain | hits, p50, p99 with affinity")
    for (name, weights), share in itertools.product(workloads.items(), (0.3, 0.6, 0.9)):
        rate = share * values.workers / (CALL_S + TOKEN_S * (STATE_TOKENS / (1 if "new" in name else 2)))
        plain, kept = (
            simulate(values.workers, rate, weights, values.requests, has_affinity=on) for on in (False, True)
        )
        print(f"{name} | {rate:.1f} | " + " | ".join(f"{h:.0f} %, {p:.0f} ms, {q:.0f} ms" for h, p, q in (plain, kept)))


if __name__ == "__main__":
    main()
