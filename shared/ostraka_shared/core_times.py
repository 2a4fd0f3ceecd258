"""What the kernel says of a process's share of the cores, and whether it may have one: /proc/PID/task/*/schedstat and
stat."""

from dataclasses import dataclass
from pathlib import Path

WANTING = frozenset("RD")
"""Runs, or waits for a core; waits for the disk."""


@dataclass(frozen=True, slots=True)
class CoreTimes:
    """Of a process, so far: seconds on a core, and seconds in wait of one. `wants_core`: just now it runs, or waits for
    a core or for the disk, as where it was swapped out."""

    ran_s: float
    waited_s: float
    wants_core: bool

    def starved_s(self, before: "CoreTimes", passed_s: float) -> float:
        """Of the seconds that have passed since, those in which it wanted a core and had none. A wait shows in
        `waited_s` once it is over; until then, in that the process wants a core and does not run."""
        waits_s = passed_s - (self.ran_s - before.ran_s) if self.wants_core else 0.0
        return min(passed_s, max(0.0, waits_s, self.waited_s - before.waited_s))


def read_core_times(pid: int) -> CoreTimes | None:
    """All its threads together: what the event loop waits for may be another's to do. None where that is not told."""
    ran_ns, waited_ns, states = 0, 0, set()
    try:
        for task in Path(f"/proc/{pid}/task").iterdir():
            ran, waited, _ = (task / "schedstat").read_text(encoding="ascii").split()
            ran_ns, waited_ns = ran_ns + int(ran), waited_ns + int(waited)
            states.add((task / "stat").read_bytes().rpartition(b") ")[2][:1].decode())
    except (OSError, ValueError):  # it ends just now, or the kernel keeps no such counts
        return None
    return CoreTimes(ran_ns / 1e9, waited_ns / 1e9, wants_core=not WANTING.isdisjoint(states))


def is_stopped(pid: int) -> bool:
    """As by SIGSTOP, or by a debugger. False too where the system does not say."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return False
    return stat.rpartition(b") ")[2][:1] in (b"T", b"t")
