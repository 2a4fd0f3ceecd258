"""What admission's caution does where others take the cores: who is late, and what is answered, in simulated time.

    python -m benchmarks.caution

An open loop at three times the capacity before one worker, whose speed changes every 0.5 to 4 s to a share of its best;
its calls show it within half a second.
"""

import itertools
import random
from collections import deque
from dataclasses import dataclass, field

from ostraka_gateway.admission import Demand, Load, admit
from ostraka_gateway.caution import LEAST, Caution
from ostraka_gateway.pace import Pace
from ostraka_shared.errors import Overloaded

STEP_S = 0.002
SECONDS = 60.0
TOKENS_PER_S = 14_000.0
TOKENS = (40, 230)
REQUESTS_PER_S = 3 * TOKENS_PER_S / (sum(TOKENS) / 2)
CALL_S = 0.02
SHOWN_S = 0.5
CHANGES_S = (0.5, 4.0)
SEEDS = range(5)


@dataclass(slots=True)
class Machine:
    """`least_share` of its best speed is the worst. `is_learning`: whether the caution follows who is late."""

    rng: random.Random
    least_share: float
    deadline_s: float
    is_learning: bool
    caution: Caution = field(default_factory=Caution)
    pace: Pace = field(default_factory=Pace)
    waiting: deque[tuple[float, int, bool]] = field(default_factory=deque)
    shown_per_s: float = TOKENS_PER_S
    spare: float = 0.0
    let_in: int = 0
    late: int = 0

    def run(self) -> None:
        arrival = changes = share = 0.0
        for step in range(int(SECONDS / STEP_S)):
            now = step * STEP_S
            if now >= changes:
                share, changes = self.rng.uniform(self.least_share, 1.0), now + self.rng.uniform(*CHANGES_S)
            self._read(now, share * TOKENS_PER_S)
            while arrival <= now:
                arrival += self.rng.expovariate(REQUESTS_PER_S)
                self._arrive(now, self.rng.randint(*TOKENS))

    def _read(self, now: float, per_s: float) -> None:
        while self.waiting and self.waiting[0][0] <= now:
            self.late += 1
            self._learn(is_to_wait=self.waiting.popleft()[2], is_late=True)
        self.spare = self.spare + STEP_S * per_s if self.waiting else 0.0
        while self.waiting and self.waiting[0][1] <= self.spare:
            _, tokens, is_to_wait = self.waiting.popleft()
            self.spare -= tokens
            self.pace.count(tokens)
            self._learn(is_to_wait=is_to_wait, is_late=False)
        self.shown_per_s += (per_s - self.shown_per_s) * STEP_S / SHOWN_S
        self.pace.watch(now, self.shown_per_s, is_waiting=bool(self.waiting))

    def _learn(self, *, is_to_wait: bool, is_late: bool) -> None:
        if is_to_wait and self.is_learning:
            self.caution.learn(is_late=is_late)

    def _arrive(self, now: float, tokens: int) -> None:
        queued, per_s = sum(each[1] for each in self.waiting), self.shown_per_s * self.pace.share
        load = Load(queued, 0, per_s, self.shown_per_s, True, CALL_S, caution=self.caution.factor)  # noqa: FBT003
        demand = Demand(tokens, tokens, self.deadline_s)
        try:
            admit(demand, load, 10**9)
        except Overloaded:
            return
        self.let_in += 1
        self.waiting.append((now + self.deadline_s, tokens, demand.is_to_wait(load)))


def main() -> None:
    for least_share, deadline_s in itertools.product((1.0, 0.8, 0.5, 0.3), (2.0, 9.0)):
        found = []
        for is_learning in (False, True):
            machines = [Machine(random.Random(seed), least_share, deadline_s, is_learning) for seed in SEEDS]
            for machine in machines:
                machine.run()
            let_in, late = sum(each.let_in for each in machines), sum(each.late for each in machines)
            rate = (let_in - late - sum(len(each.waiting) for each in machines)) / SECONDS / len(SEEDS)
            name = "as it learns" if is_learning else f"always {LEAST}"
            found.append(f"{name}: {late / let_in:.1%} late, {rate:.0f} answered a second")
        print(f"speed {least_share:.0%} to 100 %, deadline {deadline_s:g} s: {'; '.join(found)}", flush=True)


if __name__ == "__main__":
    main()
