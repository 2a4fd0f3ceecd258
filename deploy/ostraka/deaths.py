"""Tells the gateways what a worker died of: a crash, or a SIGKILL from outside.

The kernel's own SIGKILL, for want of memory, counts as a crash: a request may be what took the memory. The kernel
counts these for the whole machine, so one elsewhere makes a kill look like a crash, never the other way round.
"""

import signal
import time
from collections.abc import Callable
from pathlib import Path

import structlog

from ostraka_shared.death_notes import CRASHED, KILLED, clear_notes, leave_note

log = structlog.get_logger()

VMSTAT = Path("/proc/vmstat")
RECENT_S = 10.0
"""How long a process that is out of memory may take to end; and who else the same shortage may still end."""


class Deaths:
    """`count_oom_kills` gives how many there were since the machine's start, None where the kernel does not say."""

    def __init__(self, folder: Path, count_oom_kills: Callable[[], int | None] | None = None) -> None:
        self._folder = folder
        clear_notes(folder)
        self._count = count_oom_kills or read_oom_kills
        self._oom_kills = self._count()
        self._changed_at = -RECENT_S

    def note(self, worker_id: str, incarnation: int, code: int) -> None:
        """`code` as of `subprocess`: negative for a signal. Without a note, a gateway takes it for a crash."""
        cause = KILLED if code == -signal.SIGKILL and not self._is_short_of_memory() else CRASHED
        try:
            leave_note(self._folder, worker_id, incarnation, cause)
        except OSError as bad:
            log.warning("death_not_noted", worker=worker_id, detail=str(bad))

    def _is_short_of_memory(self) -> bool:
        now, found = time.monotonic(), self._count()
        if found != self._oom_kills:
            self._oom_kills, self._changed_at = found, now
        return found is None or now - self._changed_at < RECENT_S


def read_oom_kills() -> int | None:
    try:
        lines = VMSTAT.read_text(encoding="ascii").splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) for line in lines if line.startswith("oom_kill ")), None)
