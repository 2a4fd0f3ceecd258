"""The faults that `ostraka chaos` injects into one process of a running server: real signals, limits and cut links.

    kill    SIGKILL
    stop    SIGSTOP, and SIGCONT when the time is over: the process was away and is back
    hang    SIGSTOP until the process is given up and replaced; SIGCONT only if that does not happen in time
    slow    stopped for four fifths of the time: a fifth of its speed
    oom     no more memory from the system: it lives on what it has until it needs more
    cut     its connections to the gateway closed under it, again and again: a link that flaps

What is to be undone is undone by a process of its own, also when the command itself is killed.
"""

import contextlib
import ctypes
import os
import resource
import signal
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from ostraka.running_cluster import HeldProcess
from ostraka_shared.addresses import SOCKET_STEM
from ostraka_shared.errors import ConfigError

SLOW_PERIOD_S = 0.1
SLOW_SHARE = 0.2
CUT_PERIOD_S = 0.25
"""A cut worker dials again after 0.1 s: so each new link lives for a moment, and some have work on them."""
_SYS_PIDFD_GETFD = 438
"""<asm-generic/unistd.h>, the same on every architecture we run on."""
_libc = ctypes.CDLL(None, use_errno=True)

Fault = Callable[[HeldProcess, float], str]


def kill(process: HeldProcess, _seconds: float) -> str:
    process.send(signal.SIGKILL)
    return "killed"


def stop(process: HeldProcess, seconds: float) -> str:
    with undone(lambda: process.send(signal.SIGCONT)):
        process.send(signal.SIGSTOP)
        has_ended = process.ends_within(seconds)
    return "was given up while it was stopped" if has_ended else f"stopped for {seconds:g} s and continued"


def hang(process: HeldProcess, seconds: float) -> str:
    begun = time.monotonic()
    with undone(lambda: process.send(signal.SIGCONT)):
        process.send(signal.SIGSTOP)
        has_ended = process.ends_within(seconds)
    taken_s = time.monotonic() - begun
    return f"was given up after {taken_s:.1f} s" if has_ended else f"hung for {seconds:g} s and was not given up"


def slow(process: HeldProcess, seconds: float) -> str:
    ends = time.monotonic() + seconds
    with undone(lambda: process.send(signal.SIGCONT)):
        while time.monotonic() < ends:
            process.send(signal.SIGSTOP)
            if process.ends_within(SLOW_PERIOD_S * (1 - SLOW_SHARE)):
                return "was given up for being slow"
            process.send(signal.SIGCONT)
            if process.ends_within(SLOW_PERIOD_S * SLOW_SHARE):
                return "ended while it was slow"
    return f"ran at a fifth of its speed for {seconds:g} s"


def oom(process: HeldProcess, seconds: float) -> str:
    """The kernel's own OOM killer is a `kill`; this is how memory ends where a limit refuses it."""
    before = resource.prlimit(process.pid, resource.RLIMIT_AS)

    def give_back() -> None:
        with contextlib.suppress(ProcessLookupError):
            resource.prlimit(process.pid, resource.RLIMIT_AS, before)

    with undone(give_back):
        resource.prlimit(process.pid, resource.RLIMIT_AS, (1, before[1]))
        has_ended = process.ends_within(seconds)
    return "ran out of memory and ended" if has_ended else f"got no memory for {seconds:g} s and lived"


def cut(process: HeldProcess, seconds: float) -> str:
    ends, cuts = time.monotonic() + seconds, cut_links(process)
    if not cuts:
        raise ConfigError(f"{process.name} has no connection to a gateway just now")
    while time.monotonic() < ends and not process.ends_within(CUT_PERIOD_S):
        cuts += cut_links(process)
    return f"cut off {cuts} times" if cuts > 1 else "cut off once"


FAULTS: dict[str, tuple[Fault, float]] = {
    "kill": (kill, 0.0),
    "stop": (stop, 1.0),
    "hang": (hang, 60.0),
    "slow": (slow, 10.0),
    "oom": (oom, 60.0),
    "cut": (cut, 0.0),
}
"""Each with how long it lasts by default, in seconds."""


def cut_links(process: HeldProcess) -> int:
    """How many there were. A duplicate of the worker's own descriptor is shut down, so both ends see the connection
    end, as of a cable. Raises ConfigError where the system does not let us have the duplicate."""
    cuts = 0
    for entry in Path(f"/proc/{process.pid}/fd").iterdir():
        with contextlib.suppress(OSError):
            if os.readlink(entry).startswith("socket:"):  # noqa: PTH115  no path at all
                cuts += _cut_link(process, int(entry.name))
    return cuts


def _cut_link(process: HeldProcess, descriptor: int) -> bool:
    duplicate = _libc.syscall(_SYS_PIDFD_GETFD, process.pidfd, descriptor, 0)
    if duplicate < 0:
        number = ctypes.get_errno()
        if number == 1:  # EPERM
            raise ConfigError(
                "this system lets no process take another's sockets (kernel.yama.ptrace_scope): no link can be cut"
            )
        return False
    with socket.socket(fileno=duplicate) as link:
        if not _leads_to_gateway(link):
            return False
        link.shutdown(socket.SHUT_RDWR)
    return True


def _leads_to_gateway(link: socket.socket) -> bool:
    """Not a log's socket, say: a worker's standard error may be one."""
    if link.family == socket.AF_UNIX:
        return Path(os.fsdecode(link.getpeername())).name.startswith(SOCKET_STEM)
    return link.family in (socket.AF_INET, socket.AF_INET6) and link.type == socket.SOCK_STREAM


@contextlib.contextmanager
def undone(undo: Callable[[], object]) -> Iterator[None]:
    """`undo` runs at the end of the block, and at the end of this process, be it of kill -9.

    It runs in a child, in a session of its own, which waits for this process to close its end of a pipe or to die.
    """
    alive, is_alive = os.pipe()
    keeper = os.fork()
    if not keeper:
        try:
            os.close(is_alive)
            os.setsid()  # Ctrl-C is for the command
            os.read(alive, 1)
            undo()
        finally:
            os._exit(0)
    os.close(alive)
    try:
        yield
    finally:
        os.close(is_alive)
        os.waitpid(keeper, 0)
