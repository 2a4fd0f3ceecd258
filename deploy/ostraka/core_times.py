"""What the kernel says of a process's share of the cores: /proc/PID/task/*/schedstat and stat."""

from pathlib import Path

from ostraka.stillness import CoreTimes

WANTING = frozenset("RD")
"""Runs, or waits for a core; waits for the disk."""


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
