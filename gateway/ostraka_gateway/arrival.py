"""What a request may take to arrive: how much before its body, what of it once only, and how long in all."""

import asyncio
from collections.abc import Callable

from ostraka_gateway.framing import fault_of_framing
from ostraka_shared.errors import HeadersTooLarge, RequestError, Unreadable

HEADER_MARKS = len(": \r\n")
HEAD_BYTES_MAX = 64 * 1024
"""Of path and headers; most servers take 8 to 64 kB."""
ONCE_ONLY = frozenset({b"host", b"authorization"})
"""Two of them would be one for the proxy in front, which routes or lets in by it, and another for us."""
TRANSFER_ENCODING = b"transfer-encoding"


class RequestHead:
    """Path and headers of the request that arrives. What the parser has made out of them is counted apart from what it
    holds of one that is not finished: either may be all there is."""

    def __init__(self) -> None:
        self.is_open = False
        self._bytes = self._unfinished_bytes = 0
        self._once: dict[bytes, bytes] = {}
        self._transfer_encodings: list[bytes] = []
        self._fault: RequestError | None = None

    def begin(self) -> None:
        self.is_open = True
        self._bytes = self._unfinished_bytes = 0
        self._once.clear()
        self._transfer_encodings.clear()
        self._fault = None

    def end(self, version: str) -> None:
        """Raises what is wrong with the whole of it, which stops the parser before the request is one."""
        self.is_open = False
        self._fault = fault_of_framing(version, self._once.get(b"host"), self._transfer_encodings)
        if self._fault is not None:
            raise self._fault

    def count(self, size: int) -> None:
        """Of what the parser has made out. Raises HeadersTooLarge, which stops it."""
        self._bytes += size
        if self._bytes > HEAD_BYTES_MAX:
            raise headers_too_large()

    def count_header_bytes(self, name: bytes, value: bytes) -> None:
        self.count(len(name) + len(value) + HEADER_MARKS)

    def count_header(self, name: bytes, value: bytes) -> None:
        """Raises HeadersTooLarge or Unreadable, which stop the parser."""
        self.count_header_bytes(name, value)
        if (known := name.lower()) in ONCE_ONLY:
            if known in self._once:
                self._fault = Unreadable(f"a request should have one {known.decode()} header, not several")
                raise self._fault
            self._once[known] = value
        elif known == TRANSFER_ENCODING:
            self._transfer_encodings.append(value)

    def fault(self, reason: str) -> RequestError:
        """Of a request that the parser stopped at, for that reason."""
        if self.is_too_large:
            return headers_too_large()
        return self._fault or Unreadable(f"this is not HTTP/1.1 as this server reads it: {reason}")

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
