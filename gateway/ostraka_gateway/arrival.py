"""What a request may take to arrive: how much before its body, what of it once only, and how long in all."""

import asyncio
from collections.abc import Callable

from ostraka_shared.errors import HeadersTooLarge, RequestError, Unreadable

HEADER_MARKS = len(": \r\n")
HEAD_BYTES_MAX = 64 * 1024
"""Of path and headers; most servers take 8 to 64 kB."""
ONCE_ONLY = frozenset({b"host", b"authorization"})
"""Two of them would be one for the proxy in front, which routes or lets in by it, and another for us."""


class RequestHead:
    """Path and headers of the request that arrives. What the parser has made out of them is counted apart from what it
    holds of one that is not finished: either may be all there is."""

    def __init__(self) -> None:
        self.is_open = False
        self._bytes = self._unfinished_bytes = 0
        self._seen: set[bytes] = set()
        self._twice: str | None = None

    def begin(self) -> None:
        self.is_open = True
        self._bytes = self._unfinished_bytes = 0
        self._seen.clear()
        self._twice = None

    def end(self) -> None:
        self.is_open = False

    def count(self, size: int) -> None:
        """Of what the parser has made out. Raises HeadersTooLarge, which stops it."""
        self._bytes += size
        if self._bytes > HEAD_BYTES_MAX:
            raise headers_too_large()

    def count_header(self, name: bytes, value: bytes) -> None:
        """Raises HeadersTooLarge or Unreadable, which stop the parser."""
        self.count(len(name) + len(value) + HEADER_MARKS)
        if (known := name.lower()) in ONCE_ONLY:
            if known in self._seen:
                self._twice = known.decode()
                raise self.fault
            self._seen.add(known)

    @property
    def fault(self) -> RequestError:
        """Of a head that the parser stopped at."""
        if self.is_too_large:
            return headers_too_large()
        if self._twice:
            return Unreadable(f"a request should have one {self._twice} header, not several")
        return Unreadable("this is not HTTP/1.1 as this server reads it")

    def count_unfinished(self, size: int) -> None:
        self._unfinished_bytes += size

    @property
    def is_too_large(self) -> bool:
        return max(self._bytes, self._unfinished_bytes) > HEAD_BYTES_MAX


class ArrivalTimer:
    """While it does not run it holds nothing of its owner, which can go with its connection."""

    def __init__(self, loop: asyncio.AbstractEventLoop, timeout_s: float) -> None:
        self._loop = loop
        self._timeout_s = timeout_s
        self._timer: asyncio.TimerHandle | None = None

    @property
    def is_running(self) -> bool:
        return self._timer is not None

    def begin(self, on_late: Callable[[], None]) -> None:
        """Anew, if it runs. `on_late` is called once the time has passed, unless this is stopped before."""
        self.stop()
        self._timer = self._loop.call_later(self._timeout_s, self._end, on_late)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _end(self, on_late: Callable[[], None]) -> None:
        self._timer = None
        on_late()


def headers_too_large() -> HeadersTooLarge:
    return HeadersTooLarge(f"a request's path and headers should have at most {HEAD_BYTES_MAX} bytes")
