"""Signals as bytes on a socket, so that whoever waits takes them one at a time. Does not know what they mean.

Not `sigtimedwait`: CPython 3.11 returns uninitialised memory where EINTR meets an expired timeout, as after a SIGSTOP.
"""

import select
import signal
import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

IGNORED = (signal.SIGUSR1, signal.SIGUSR2)
"""Taken to be said, and for nothing else: by default each would end this process."""
TAKEN = (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGHUP, *IGNORED)


class TakenSignals:
    """One socket: the C handler writes each signal's number into it, whatever runs at that moment."""

    def __init__(self, numbers: socket.socket) -> None:
        self._numbers = numbers

    def wait(self, timeout_s: float, others: Sequence[socket.socket] = ()) -> signal.Signals | None:
        """The next one; None where none came in time, or something came on one of the `others`."""
        readable, _, _ = select.select([self._numbers, *others], [], [], timeout_s)
        return signal.Signals(self._numbers.recv(1)[0]) if self._numbers in readable else None


@contextmanager
def taken_signals() -> Iterator[TakenSignals]:
    """What is ignored stays ignored: SIGHUP under nohup, SIGINT in a shell's background. Main thread only."""
    ours, handlers_end = socket.socketpair()
    with ours, handlers_end:
        handlers_end.settimeout(0.0)
        # A full buffer holds hundreds of signals not yet taken: one more changes nothing.
        wakeup_fd = signal.set_wakeup_fd(handlers_end.fileno(), warn_on_full_buffer=False)
        before = {number: signal.signal(number, _only_wake) for number in TAKEN if _is_wanted(number)}
        mask = signal.pthread_sigmask(signal.SIG_UNBLOCK, TAKEN)
        try:
            yield TakenSignals(ours)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
            for number, handler in before.items():
                signal.signal(number, handler)
            signal.set_wakeup_fd(wakeup_fd)


def _is_wanted(number: signal.Signals) -> bool:
    """An ignored SIGCHLD would have the kernel reap our children, and their exit codes with them."""
    return number == signal.SIGCHLD or signal.getsignal(number) != signal.SIG_IGN


def _only_wake(_number: int, _frame: object) -> None:
    """There must be a handler for the number to be written."""
