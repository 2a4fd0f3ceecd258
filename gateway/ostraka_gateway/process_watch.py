"""Notices the exit of a worker process on this machine at once, and ends one that hangs, both by pidfd.

A pidfd names one process for as long as it is open, so that a reused pid is never watched or killed by mistake.
"""

import asyncio
import contextlib
import os
import select
import signal
from collections.abc import Callable

import psutil

from ostraka_shared.addresses import host_id
from ostraka_shared.core_times import CoreTimes, read_core_times


class ProcessWatch:
    def __init__(self) -> None:
        self._host = host_id()
        self._pidfds: dict[bytes, int] = {}
        self._siblings: dict[bytes, int] = {}

    def add(self, identity: bytes, host: str, pid: int, on_exit: Callable[[], None]) -> None:
        """Does nothing for a process elsewhere: there, silence must tell. `on_exit` is called on the event loop."""
        if host != self._host:
            return
        try:
            pidfd = os.pidfd_open(pid)
        except ProcessLookupError:
            asyncio.get_running_loop().call_soon(on_exit)
            return
        except OSError:
            return  # a kernel or sandbox without pidfd
        self._pidfds[identity] = pidfd
        if _is_sibling(pid):
            self._siblings[identity] = pid
        asyncio.get_running_loop().add_reader(pidfd, on_exit)

    def is_running(self, identity: bytes) -> bool:
        """False also where it cannot be known."""
        pidfd = self._pidfds.get(identity)
        if pidfd is None:
            return False
        ended = select.poll()  # `select.select` knows no descriptor above 1,023, and clients may have all of those
        ended.register(pidfd, select.POLLIN)
        return not ended.poll(0)

    def is_sibling(self, identity: bytes) -> bool:
        """Of the same supervisor."""
        return identity in self._siblings

    def core_times(self, identity: bytes) -> CoreTimes | None:
        """None for one that is no sibling, and where the system does not say."""
        pid = self._siblings.get(identity)
        return read_core_times(pid) if pid is not None else None

    def kill(self, identity: bytes) -> None:
        """Also a stopped process dies of SIGKILL; its supervisor starts another.

        Only a process of the same supervisor is killed: the pid is the peer's own word.
        """
        if identity in self._siblings:
            with contextlib.suppress(OSError):
                signal.pidfd_send_signal(self._pidfds[identity], signal.SIGKILL)

    def remove(self, identity: bytes) -> None:
        self._siblings.pop(identity, None)
        if (pidfd := self._pidfds.pop(identity, None)) is not None:
            asyncio.get_running_loop().remove_reader(pidfd)
            os.close(pidfd)


def _is_sibling(pid: int) -> bool:
    try:
        return bool(psutil.Process(pid).ppid() == os.getppid())
    except psutil.Error:
        return False
