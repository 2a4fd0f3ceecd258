"""Standard error for log lines: what cannot be written is lost, and nothing else. No full disk, no reader of a pipe
that has gone or stands still may end or stop a process, or a request that something was to be said of.
"""

import contextlib
import io
import os
import select
import socket
import stat
from collections.abc import Callable
from typing import TextIO

PATIENCE_MS = 100
"""For a reader to catch up, once; from then on what it does not take at once is lost, until it takes some again."""
LINE_BYTES = select.PIPE_BUF
"""The longest line on a pipe or a socket. So much is written whole or not at all, also where others write there too; a
longer one would wait for a reader, or be torn."""
LEFT_OUT = " ... [cut] ... "


class LossyStream(io.TextIOBase):
    def __init__(self, stream: TextIO) -> None:
        self._patience_ms = PATIENCE_MS
        self._room: select.poll | None = None
        self._longest: int | None = None
        try:
            descriptor = stream.fileno()
        except OSError:  # a test's, which is no file
            self._write: Callable[[bytes], object] = lambda line: stream.write(line.decode())
        else:
            self._room = select.poll()
            self._room.register(descriptor, select.POLLOUT)
            mode = os.fstat(descriptor).st_mode
            self._longest = LINE_BYTES if stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode) else None
            self._write = _writer(descriptor, mode)

    def write(self, text: str) -> int:
        line = text.encode("utf-8", "backslashreplace")
        if self._longest and len(line) > self._longest:
            line = cut_line(line, self._longest)
        with contextlib.suppress(OSError):
            if self._has_room():
                self._write(line)
        return len(text)

    def _has_room(self) -> bool:
        """Of a line at least, in a pipe, unless another process is quicker."""
        has_room = not self._room or bool(self._room.poll(self._patience_ms))
        self._patience_ms = PATIENCE_MS if has_room else 0
        return has_room


def cut_line(line: bytes, longest: int) -> bytes:
    """Of UTF-8: its beginning and its end."""
    half = (longest - len(LEFT_OUT)) // 2
    begin, end = line[:half].decode(errors="ignore"), line[-half:].decode(errors="ignore")
    return f"{begin}{LEFT_OUT}{end}".encode()


def _writer(descriptor: int, mode: int) -> Callable[[bytes], object]:
    """One that never waits, where there is such a thing. Non-blocking is a pipe's own end, opened anew: the one we were
    given may be our caller's terminal or log, and is as it was."""
    if stat.S_ISSOCK(mode):
        log = socket.socket(fileno=os.dup(descriptor))
        return lambda line: log.send(line, socket.MSG_DONTWAIT)
    if stat.S_ISFIFO(mode):
        with contextlib.suppress(OSError):  # of another user, or without a reader
            own = os.open(f"/proc/self/fd/{descriptor}", os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            return lambda line: os.write(own, line)
    return lambda line: os.write(descriptor, line)
