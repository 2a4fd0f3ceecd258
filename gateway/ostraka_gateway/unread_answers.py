"""Ends a connection whose client does not read its answers, which would otherwise be kept for ever."""

import asyncio


class UnreadAnswers:
    """One connection's. It looks every `patience_s` and gives up where nothing at all was taken in between: who reads
    slowly does read. `watch` costs nothing where it looks already."""

    def __init__(self, loop: asyncio.AbstractEventLoop, transport: asyncio.Transport, patience_s: float) -> None:
        self._loop = loop
        self._transport = transport
        self._patience_s = patience_s
        self._answers = 0
        self._seen: tuple[int, int] | None = None
        self._next_look: asyncio.TimerHandle | None = None

    def count_answer(self) -> None:
        """Another is possible only as long as the transport takes writes: those before it are being read."""
        self._answers += 1
        self.watch()

    def watch(self) -> None:
        if self._next_look is None:
            self._next_look = self._loop.call_later(self._patience_s, self._look)

    def stop(self) -> None:
        if self._next_look is not None:
            self._next_look.cancel()
            self._next_look = None

    def _look(self) -> None:
        self._next_look = None
        unread_bytes = self._transport.get_write_buffer_size()
        if not unread_bytes:
            self._seen = None
            return
        if self._seen is not None and self._seen[0] == self._answers and unread_bytes >= self._seen[1]:
            self._transport.abort()
            return
        self._seen = (self._answers, unread_bytes)
        self.watch()
