"""Starts child processes that cannot outlive this one, and knows what became of them."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import structlog

from ostraka.restarts import RestartPolicy
from ostraka.signals import TAKEN
from ostraka_gateway.auth import KEYS_VARIABLE
from ostraka_shared.process_control import die_with_parent
from ostraka_shared.setting_sources import PREFIX
from ostraka_shared.stray_signals import STRAY

log = structlog.get_logger()

CHILD_ENVIRONMENT = {
    "OPENBLAS_NUM_THREADS": "1",  # numpy would start one thread a core, in each process
    "OMP_NUM_THREADS": "1",
    "ORT_DISABLE_TELEMETRY": "1",
    "TOKENIZERS_PARALLELISM": "false",
}


FEW_MUTE = 3
"""In a row. Forks that die before they serve may have that from what they are forked from. At the start the first is
enough: nobody is to wait for a second."""


class ForkFailed(Exception):
    """No process came of a fork that was asked for. `may_be_repeated`: another one that is asked for may come."""

    def __init__(self, reason: str, *, may_be_repeated: bool = False) -> None:
        super().__init__(reason)
        self.may_be_repeated = may_be_repeated


class Process(Protocol):
    """What is needed of `subprocess.Popen`."""

    pid: int

    def poll(self) -> int | None: ...

    def wait(self) -> int: ...

    def send_signal(self, number: signal.Signals) -> None: ...


class Fork(Process, Protocol):
    """`has_served`: it has told that it has come so far."""

    has_served: bool


ForkFrom = Callable[[Sequence[str], Sequence[int]], Fork | None]
"""Of a program's arguments, and descriptors of sockets that it is given; None where it cannot even be asked for."""


@dataclass(slots=True, eq=False)
class Child:
    """`command(incarnation)` is its argument list after the interpreter. `withheld`: variables it does not inherit.

    `fork_from`, where there is one, makes it of a process that has the program and its model in memory; where that
    fails, or brings nothing that serves, it is started as any other. `on_end` is told of each end: name, incarnation,
    exit status as of `reap`. `mute_forks`: so many in a row have not served.

        fork ──► serves ──► its death: fork
          ▲  └── dies before, FEW_MUTE in a row ──► start, once
          └──────────────────────────────────────────┘
    """

    name: str
    command: Callable[[int], Sequence[str]]
    policy: RestartPolicy
    pass_fds: tuple[int, ...] = ()
    withheld: Collection[str] = ()
    incarnation: int = 0
    fork_from: ForkFrom | None = field(default=None, repr=False)
    on_end: Callable[[str, int, int], None] | None = field(default=None, repr=False)
    process: Process | None = field(default=None, repr=False)
    forked: Fork | None = field(default=None, repr=False)
    """The last process, where it was one."""
    mute_forks: int = 0
    has_fork_failed: bool = False
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
        if self.fork_from and not self.has_fork_failed:
            self.forked = self.fork_from(self.command(self.incarnation)[2:], self.pass_fds)  # less -m and the module
            if self.forked:
                self.process = self.forked
                return
            self._say_not_forked("no process that has loaded is running")
        self.forked, self.has_fork_failed = None, False
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
            env={name: value for name, value in os.environ.items() if self._inherits(name)} | CHILD_ENVIRONMENT,
            process_group=0,  # Ctrl-C is for the supervisor, which drains in order
            preexec_fn=die_with(os.getpid()),  # noqa: PLW1509  this process has one thread
        )

    def _inherits(self, variable: str) -> bool:
        """Of our settings the keys alone, which no command line may show: it has all others there, and would take some
        that are ours for its own."""
        is_setting = variable.startswith(PREFIX) and variable != KEYS_VARIABLE
        return not is_setting and variable not in self.withheld

    def reap(self) -> int | None:
        """The exit status of a process that has ended (negative for a signal), once; else None."""
        try:
            if self.process is None or (code := self.process.poll()) is None:
                return None
        except ForkFailed as bad:
            self._count_mute(str(bad), most=FEW_MUTE if bad.may_be_repeated else 1)
            self.process, self.restart_at = None, time.monotonic()
            return None
        if self.on_end:
            self.on_end(self.name, self.incarnation, code)
        self.process = None
        return code

    def _count_mute(self, reason: str, *, most: int) -> None:
        """A fork has come to nothing."""
        self.mute_forks += 1
        if self.mute_forks >= most:
            self.mute_forks, self.has_fork_failed = 0, True
            self._say_not_forked(reason)

    def _say_not_forked(self, reason: str) -> None:
        log.warning("not_forked", child=self.name, reason=reason, hint="it loads for itself")

    def schedule_restart(self, *, has_been_ready: bool) -> None:
        if self.forked and self.forked.has_served:
            self.mute_forks = 0
        elif self.forked:
            most = FEW_MUTE if has_been_ready else 1
            self._count_mute("forks die before they serve", most=most)
        now = time.monotonic()
        delay_s = self.policy.next_delay_s(now - self.started, has_been_ready=has_been_ready)
        if delay_s is None:
            self.is_given_up = True
        else:
            self.restart_at = now + delay_s

    def send(self, number: signal.Signals) -> None:
        if self.process:
            self.process.send_signal(number)


@dataclass(slots=True, eq=False)
class ControlledChild(Child):
    """One with a channel to this process, `control`, anew at each start and hung up with its end: `command` gets the
    channel's descriptor from `pass_fds`, where it is the last, after `inherited_fds`."""

    inherited_fds: tuple[int, ...] = ()
    control: socket.socket | None = None

    def start(self) -> None:
        self.hang_up()
        self.control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.control.settimeout(0.0)
        with theirs:
            self.pass_fds = (*self.inherited_fds, theirs.fileno())
            Child.start(self)  # `super()` knows nothing of a dataclass made anew for its slots

    def reap(self) -> int | None:
        code = Child.reap(self)
        if code is not None:
            self.hang_up()
        return code

    def hang_up(self) -> None:
        if self.control:
            self.control.close()
        self.control = None


def die_with(parent: int, number: signal.Signals = signal.SIGKILL) -> Callable[[], None]:
    """To run in the child before it becomes its program: sent `number` when the parent dies, even of kill -9.

    It then starts as from a shell, but for the signals that mean nothing to it: subprocess restores SIGPIPE only, and
    exec keeps what is ignored or blocked.
    """

    def hook() -> None:
        if not die_with_parent(number):
            os.write(
                2, b"ostraka: prctl(PR_SET_PDEATHSIG) fails here, and a child that may outlive us is not started\n"
            )
            os._exit(1)
        for each in TAKEN:
            signal.signal(each, signal.SIG_IGN if each in STRAY else signal.SIG_DFL)  # until it has handlers of its own
        signal.pthread_sigmask(signal.SIG_SETMASK, [])
        if os.getppid() != parent:  # it died in between
            os._exit(1)

    return hook
