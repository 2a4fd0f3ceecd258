"""What Linux's prctl has for parents and children, which Python lacks. Each call concerns the calling process."""

import ctypes
import signal
from pathlib import Path

_PR_SET_PDEATHSIG = 1  # <sys/prctl.h>
_PR_SET_NAME = 15
_PR_SET_CHILD_SUBREAPER = 36
_libc = ctypes.CDLL(None, use_errno=True)


def die_with_parent(number: signal.Signals = signal.SIGKILL) -> bool:
    """Sent `number` when the parent dies, even of kill -9. False where the system has no such thing.

    It holds for the parent of this moment: after the call, ask `os.getppid()` whether it still is the one meant.
    """
    return bool(_libc.prctl(_PR_SET_PDEATHSIG, number) == 0)


def adopt_orphans() -> bool:
    """Whatever a descendant leaves behind becomes this process's child, not init's. False where that cannot be."""
    return bool(_libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0)


def name_process(name: str) -> None:
    """As `ps -o comm` and `top` show it: 15 bytes of it."""
    _libc.prctl(_PR_SET_NAME, name.encode()[:15] + b"\0")


def count_threads() -> int:
    """As the kernel has them, those of native code too."""
    return sum(1 for _ in Path("/proc/self/task").iterdir())


def give_back_memory() -> None:
    """What the C library keeps of freed memory goes back to the system. Only glibc has a call for it."""
    if trim := getattr(_libc, "malloc_trim", None):
        trim(0)
