"""The memory and the open files of a server's processes as time goes, and whether a kind of them grows."""

import contextlib
import re
import time
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from statistics import mean

import psutil

from benchmarks.faults.trend import Gain, Point, Verdict, at_equal_age, gain, later_halves

MB = 1e6
HOUR_S = 3600.0
LONG_LIFE_S = 300.0
"""Its later half is then past what a process fills at first."""
GROWTH = 0.05
SUPERVISOR, GATEWAY = "supervisor", "gateway"
KINDS = {
    "ostraka g[0-9]+": GATEWAY,
    "ostraka w[0-9]+": "worker",
    "ostraka gzygote": "gateway zygote",
    "ostraka zygote": "worker zygote",
    "ostraka gspare": "gateway spare",
    "ostraka spare": "worker spare",
}
"""By the process's name, as `ps` shows it."""


@dataclass(frozen=True, slots=True)
class Growth:
    """Of something that each process of a kind has: how much, on average and at most, and what it gains in an hour,
    within long lives, and from one life to the next at `age_s`."""

    mean: float
    most: float
    within: Gain
    between: Gain
    age_s: float

    def judge(self, hours: float) -> Verdict:
        """A twentieth in all that time is no growth. Where not enough lived and died to compare, what is seen within
        lives decides."""
        limit = GROWTH * self.mean / hours
        verdicts = [each.judge(limit) for each in (self.within, self.between) if each is self.within or each.gains]
        if Verdict.GROWS in verdicts:
            return Verdict.GROWS
        return Verdict.FLAT if set(verdicts) == {Verdict.FLAT} else Verdict.UNCLEAR


@dataclass(frozen=True, slots=True)
class KindGrowth:
    """`rss` in MB."""

    kind: str
    lives: int
    rss: Growth
    files: Growth


@dataclass(slots=True)
class Processes:
    """`supervisor` and all its descendants, by kind and pid."""

    supervisor: psutil.Process
    memory: dict[str, dict[int, list[Point]]] = field(default_factory=lambda: defaultdict(lambda: defaultdict(list)))
    files: dict[str, dict[int, list[Point]]] = field(default_factory=lambda: defaultdict(lambda: defaultdict(list)))

    def sample(self) -> None:
        """Who has no name yet is not counted yet."""
        now = time.monotonic()
        self._take(SUPERVISOR, self.supervisor, now)
        for each in self.supervisor.children(recursive=True):
            with contextlib.suppress(psutil.Error):
                if kind := kind_of(each.name()):
                    self._take(kind, each, now)

    def growth(self) -> list[KindGrowth]:
        kinds = [kind for kind in (SUPERVISOR, *KINDS.values()) if self.memory[kind]]
        return [
            KindGrowth(
                kind, len(self.memory[kind]), *(measure(each[kind].values()) for each in (self.memory, self.files))
            )
            for kind in kinds
        ]

    def _take(self, kind: str, process: psutil.Process, now: float) -> None:
        files = count_files(process) if kind == GATEWAY else process.num_fds()
        self.memory[kind][process.pid].append((now, process.memory_info().rss / MB))
        self.files[kind][process.pid].append((now, files))


def kind_of(name: str) -> str | None:
    return next((kind for pattern, kind in KINDS.items() if re.fullmatch(pattern, name, re.ASCII)), None)


def measure(lives: Iterable[Sequence[Point]]) -> Growth:
    """Pure."""
    lives = list(lives)
    values = [value for life in lives for _, value in life]
    age_s, reached = at_equal_age(lives)
    within, between = gain(later_halves(lives, LONG_LIFE_S)), gain([reached])
    return Growth(mean(values), max(values), within.times(HOUR_S), between.times(HOUR_S), age_s)


def count_files(process: psutil.Process) -> int:
    """Without the clients' connections: how many those are is for the clients to say. The system lists all there are on
    the machine for it, which may take a tenth of a second."""
    open_ones = sum(each.status == psutil.CONN_ESTABLISHED for each in process.net_connections("tcp"))
    return process.num_fds() - open_ones
