"""The supervisor's side of a zygote: children that are forked from a process which has loaded, not started anew.

    Child.start ─► Zygote.fork ─► ForkedProcess: asked ─pid─► running ─serving─► serves ─► exit code
                                      ▲            └─ refused, hung up, overdue ─► ForkFailed: it loads for itself
                                      └── once more, where a fork says nothing, or its zygote was lost ◄─┘

A request waits in the zygote's socket while that still loads. Each has a channel, which whoever gives up closes.
"""

import contextlib
import json
import os
import signal
import socket
import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass

import structlog

from ostraka.children import Child, ControlledChild, ForkFailed
from ostraka_shared.core_times import is_stopped
from ostraka_shared.process_control import adopt_orphans
from ostraka_shared.zygote import HANDED, SERVING

log = structlog.get_logger()

SILENT_S = 3.0
"""Forking takes 10 to 40 ms, and a worker's first call as long, or a second where the model is large. A loaded zygote,
or a spare, of which nothing is heard for so long is stopped or hangs."""
STOPPED_S, WAITED_FOR_S = 2.5, 0.3
"""A zygote that somebody has stopped is not waited for, as it would be if it only took its time: how long it may be so
while nobody waits for its fork, and while somebody does."""
STEP_S = 0.5
"""What one look counts at most: who looks may have been stopped too."""
UNSERVED_S = 60.0
"""From its pid, a fork takes 20 ms until it serves. One that does not is killed, and followed as one that died."""
LOAD_S = 300.0
"""As long as the gateway gives a worker: a large model from a cold disk."""
MESSAGE_BYTES = 1 << 16
"""Of a report: a pid, or the reason of a refusal, which may name a path (4 kB)."""
EXIT_UNKNOWN = 255
FEW_DEATHS = 3
"""In a row. A zygote that dies more often than that has a reason, and nobody is to wait for it."""


@dataclass(slots=True, eq=False)
class Zygote(ControlledChild):
    """A child like the others: started, replaced, ended."""

    spare_silent_s: float = SILENT_S
    heard_at: float | None = None
    asked: int = 0
    handed: int = 0
    """Of the forks that were asked for, in their order, so many were handed to a spare."""
    has_failed: bool = False
    """A spare was handed one and said nothing, and none has spoken since."""
    stopped_s: float | None = None
    looked_at: float = 0.0
    loaded_incarnation: int = 0
    """The last that had loaded."""

    def start(self) -> None:
        """Raises OSError where it cannot be started, or its forks could not become this process's children."""
        if not adopt_orphans():
            raise OSError("prctl(PR_SET_CHILD_SUBREAPER) fails here")
        ControlledChild.start(self)

    def hang_up(self) -> None:
        self._listen()
        ControlledChild.hang_up(self)
        self.heard_at, self.has_failed, self.stopped_s = None, False, None
        self.asked = self.handed = 0

    def schedule_restart(self, *, has_been_ready: bool) -> None:
        """One that has not come so far that it could fork was of no use, however long it took to load."""
        if self.loaded_incarnation != self.incarnation:
            self.started = time.monotonic()
        ControlledChild.schedule_restart(self, has_been_ready=has_been_ready)

    def fork(self, arguments: Sequence[str], sockets: Sequence[int] = ()) -> "ForkedProcess | None":
        """A child to be, asked for with `arguments`; None where there is nobody to ask. A zygote that has just died is
        started for it at once: the child is there as soon as if it loaded for itself, and shares its memory. One that
        is dying has closed its socket and is not reaped yet: its fork then learns of its end as any other does."""
        if (due := self.restart_at) is not None and self.policy.quick_deaths <= FEW_DEATHS:
            try:
                self.start()
            except OSError:
                self.restart_at = due
        if not self.is_running or not self.control:
            return None
        self._listen()
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ours.settimeout(0.0)
        with theirs:
            try:
                socket.send_fds(ours, [json.dumps(list(arguments)).encode()], sockets)
                with contextlib.suppress(ConnectionError):
                    socket.send_fds(self.control, [b"fork"], [theirs.fileno()])
            except OSError:
                ours.close()
                return None
        self.asked += 1
        return ForkedProcess(self, ours, self.asked)

    def look(self, now: float) -> None:
        """To be called several times a second: stopped, it is killed, and followed as one that died."""
        passed_s, self.looked_at = min(now - self.looked_at, STEP_S), now
        if self.process is None or not is_stopped(self.process.pid):
            self.stopped_s = None
            return
        self._listen()
        self.stopped_s = 0.0 if self.stopped_s is None else self.stopped_s + passed_s
        if self.stopped_s >= (WAITED_FOR_S if self.asked > self.handed else STOPPED_S):
            log.warning("zygote_stopped", child=self.name, stopped_s=round(self.stopped_s, 1), hint="it is killed")
            self.stopped_s = None
            self.send(signal.SIGKILL)

    def has_forked(self) -> None:
        """A fork has spoken. It takes one request after the other."""
        self.heard_at, self.has_failed = time.monotonic(), False

    def is_overdue(self, number: int, asked_at: float) -> bool:
        """Whether the fork that was asked for then, as the `number`th, should have spoken."""
        self._listen()
        if self.heard_at is None:
            return time.monotonic() >= self.started + LOAD_S
        patience_s = self.spare_silent_s if self.handed >= number else SILENT_S
        return time.monotonic() >= max(self.heard_at, asked_at) + patience_s

    def blame(self, number: int) -> bool:
        """For one that is overdue: its spare, where it has one and the last one spoke; else the zygote, which is killed
        then. Whether another fork may come of it."""
        is_spares = self.handed >= number and not self.has_failed
        self.has_failed = True
        if not is_spares:
            self.send(signal.SIGKILL)
        return is_spares

    def has_handed(self, number: int) -> bool:
        """Whether a spare was given what was asked for as the `number`th."""
        self._listen()
        return self.handed >= number

    def _listen(self) -> None:
        with contextlib.suppress(OSError):  # no more
            while self.control and (said := self.control.recv(MESSAGE_BYTES)):
                self.heard_at = time.monotonic()
                self.loaded_incarnation = self.incarnation
                self.handed += said == HANDED


class ForkedProcess:
    """As `subprocess.Popen` to its Child. A process of ours from the first moment, known once it has sent its pid."""

    def __init__(self, zygote: Zygote, channel: socket.socket, number: int) -> None:
        self._zygote = zygote
        self._number = number
        self._incarnation = zygote.incarnation
        self._channel: socket.socket | None = channel
        self._asked_at = time.monotonic()
        self._code: int | None = None
        self._is_cut = False
        self.pid = 0
        self.has_served = False

    @property
    def channel(self) -> socket.socket | None:
        """Where its pid will come from, and then that it serves; None once that is known, or nothing more will come."""
        return None if self._is_cut else self._channel

    def poll(self) -> int | None:
        """Its exit code, as Popen's. Raises ForkFailed."""
        code = self._wait(os.WNOHANG)  # before its last word is looked for: what it said, it said by then
        if self._channel and not self.pid:
            self._take_report(self._channel)
        if self._channel and self.pid:
            self._await_serving(self._channel)
        return code

    def wait(self) -> int:
        code = self._wait(0)
        self._hang_up()
        return EXIT_UNKNOWN if code is None else code

    def send_signal(self, number: signal.Signals) -> None:
        if self._code is not None:
            return
        if self.pid:
            os.kill(self.pid, number)  # ours, and not reaped yet: the pid is nobody else's
        else:
            self._abandon(-number)

    def _take_report(self, channel: socket.socket) -> None:
        try:
            message = channel.recv(MESSAGE_BYTES)
        except BlockingIOError:
            message = None
        except ConnectionResetError:  # closed with our settings unread
            message = b""
        if not message:
            if message is not None:
                self._take_end()
            if self._zygote.is_overdue(self._number, self._asked_at):
                may_be_repeated = self._zygote.blame(self._number)
                self._fail("the process that has loaded does not answer", may_be_repeated=may_be_repeated)
            return
        report = json.loads(message)
        if "pid" not in report:
            self._fail(report["refused"])
        self.pid = report["pid"]
        self._zygote.has_forked()
        self._asked_at = time.monotonic()
        with contextlib.suppress(OSError):  # it has died already, and is about to be reaped
            channel.send(b"go")

    def _take_end(self) -> None:
        """Of the channel: with the fork, or with its zygote. One that had loaded is followed by another, for which to
        wait takes no longer than to load, and shares its memory; but only once its end is seen."""
        zygote = self._zygote
        is_here = zygote.is_running and zygote.incarnation == self._incarnation
        is_loss = zygote.loaded_incarnation >= self._incarnation and not (is_here and zygote.has_handed(self._number))
        if is_here and is_loss:
            self._is_cut = True
            return
        self._fail("the process that has loaded has ended, or its fork has", may_be_repeated=is_loss)

    def _await_serving(self, channel: socket.socket) -> None:
        try:
            self.has_served = channel.recv(MESSAGE_BYTES) == SERVING
        except BlockingIOError:
            if time.monotonic() - self._asked_at > UNSERVED_S:
                self.send_signal(signal.SIGKILL)
            return
        except ConnectionResetError:  # it died with its "go" unread
            pass
        self._hang_up()

    def _fail(self, reason: str, *, may_be_repeated: bool = False) -> None:
        self._abandon(EXIT_UNKNOWN)
        raise ForkFailed(reason, may_be_repeated=may_be_repeated)

    def _abandon(self, code: int) -> None:
        """Without a channel, the fork ends by itself."""
        self._code = code
        self._hang_up()

    def _hang_up(self) -> None:
        if self._channel:
            self._channel.close()
            self._channel = None

    def _wait(self, options: int) -> int | None:
        if self._code is None and self.pid:
            try:
                pid, status = os.waitpid(self.pid, options)
            except ChildProcessError:  # reaped as a stray, before we knew of it
                self._code = EXIT_UNKNOWN
            else:
                self._code = os.waitstatus_to_exitcode(status) if pid else None
        return self._code


def awaited_channels(children: Sequence[Child]) -> list[socket.socket]:
    """Of the forks that are asked for and do not serve yet."""
    forked = [child.process for child in children if isinstance(child.process, ForkedProcess)]
    return [process.channel for process in forked if process.channel]


def reap_strays(known: Collection[int]) -> None:
    """Zombies that nobody waits for: spare forks whose zygote has ended. Stops at one that is `known`."""
    try:
        while found := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT):
            if found.si_pid in known:
                return
            os.waitpid(found.si_pid, 0)
    except ChildProcessError:
        pass
