"""Starts child processes that cannot outlive this one, and knows what became of them."""

import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field

import structlog

from ostraka.restarts import RestartPolicy
from ostraka.signals import TAKEN

log = structlog.get_logger()

_PR_SET_PDEATHSIG = 1  # <sys/prctl.h>
_libc = ctypes.CDLL(None, use_errno=True)

CHILD_ENVIRONMENT = {
    "OPENBLAS_NUM_THREADS": "1",  # numpy would start one thread a core, in each process
    "OMP_NUM_THREADS": "1",
    "ORT_DISABLE_TELEMETRY": "1",
    "TOKENIZERS_PARALLELISM": "false",
}


@dataclass(slots=True, eq=False)
class Child:
    """`command(incarnation)` is its argument list after the interpreter. `withheld`: variables it does not inherit."""

    name: str
    command: Callable[[int], Sequence[str]]
    policy: RestartPolicy
    pass_fds: tuple[int, ...] = ()
    withheld: Collection[str] = ()
    incarnation: int = 0
    process: subprocess.Popen[bytes] | None = field(default=None, repr=False)
    started: float = 0.0
    restart_at: float | None = None
    is_given_up: bool = False

    @property
    def is_running(self) -> bool:
        return self.process is not None

    def start(self) -> None:
        self.incarnation += 1
        self.started = time.monotonic()
        self.restart_at = None
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, TAKEN)  # until it has handlers of its own: ours would tell us
        try:
            self.process = self._popen()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)

    def _popen(self) -> "subprocess.Popen[bytes]":
        return subprocess.Popen(
            [sys.executable, *self.command(self.incarnation)],
            stdin=subprocess.DEVNULL,
            pass_fds=self.pass_fds,
            env={name: value for name, value in os.environ.items() if name not in self.withheld} | CHILD_ENVIRONMENT,
            process_group=0,  # Ctrl-C is for the supervisor, which drains in order
            preexec_fn=die_with(os.getpid()),  # noqa: PLW1509  this process has one thread
        )

    def reap(self) -> int | None:
        """The exit status of a process that has ended (negative for a signal), once; else None."""
        if self.process is None or (code := self.process.poll()) is None:
            return None
        self.process = None
        return code

    def schedule_restart(self, *, has_been_ready: bool) -> None:
        now = time.monotonic()
        delay_s = self.policy.next_delay_s(now - self.started, has_been_ready=has_been_ready)
        if delay_s is None:
            self.is_given_up = True
        else:
            self.restart_at = now + delay_s

    def send(self, number: signal.Signals) -> None:
        if self.process:
            self.process.send_signal(number)


def die_with(parent: int, number: signal.Signals = signal.SIGKILL) -> Callable[[], None]:
    """To run in the child before it becomes its program: sent `number` when the parent dies, even of kill -9.

    It then starts as from a shell: subprocess restores SIGPIPE only, and exec keeps what is ignored or blocked.
    """

    def hook() -> None:
        if _libc.prctl(_PR_SET_PDEATHSIG, number) != 0:
            os.write(
                2, b"ostraka: prctl(PR_SET_PDEATHSIG) fails here, and a child that may outlive us is not started\n"
            )
            os._exit(1)
        for each in TAKEN:
            signal.signal(each, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, [])
        if os.getppid() != parent:  # it died in between
            os._exit(1)

    return hook
