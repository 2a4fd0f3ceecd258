"""Large bodies of all requests together: how many bytes of them are held at once, and that one at a time is understood.

    expected, or grown, large ──► waits for room, first come first served ──► read ──► its turn: decoded, validated
                                        (529 after the read timeout)                          └► its room is free

Small ones pass by, so that no crowd of large ones keeps them out; `--connections` is what bounds those.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Self, TypeVar, TypeVarTuple

LARGE_BODY_BYTES = 1 << 16
"""From here on a body is understood in a thread of its own kind, in no tokenizer's way. It takes 0.1 us a byte,
0.3 where it is all objects, and has the GIL for most of that: large bodies slow the others, but do not stop them."""
BODIES_HELD = 4
"""Of the largest size. One is being parsed, which takes several times as much; the others arrive meanwhile."""

Taken = TypeVarTuple("Taken")
Given = TypeVar("Given")


class LargeBodies:
    """Of one event loop. `body_bytes`: the most a body may have."""

    def __init__(self, body_bytes: int) -> None:
        self._free_bytes = BODIES_HELD * body_bytes
        self._line: deque[tuple[int, asyncio.Future[None]]] = deque()
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="large_body")
        self.turn = asyncio.Lock()

    async def run(self, step: Callable[[*Taken], Given], *taken: *Taken) -> Given:
        return await asyncio.get_running_loop().run_in_executor(self._pool, step, *taken)

    async def take(self, count: int) -> None:
        if not self._line and count <= self._free_bytes:
            self._free_bytes -= count
            return
        let_in = asyncio.get_running_loop().create_future()
        self._line.append((count, let_in))
        try:
            await let_in
        except asyncio.CancelledError:
            self.give_back(0 if let_in.cancelled() else count)  # it may have been let in just before
            raise

    def give_back(self, count: int) -> None:
        self._free_bytes += count
        while self._line and (self._line[0][1].done() or self._line[0][0] <= self._free_bytes):
            taken, let_in = self._line.popleft()
            if not let_in.done():  # else it has left
                self._free_bytes -= taken
                let_in.set_result(None)

    def close(self) -> None:
        self._pool.shutdown(cancel_futures=True)


class Room:
    """One request's, of all its body may grow to; as a context, until its end. `check` is called before there is room
    for a large one, and raises where it is for nothing."""

    def __init__(self, bodies: LargeBodies, check: Callable[[], None] | None = None) -> None:
        self._bodies = bodies
        self._check = check
        self._held_bytes = 0
        self.is_waiting = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._held_bytes:
            self._bodies.give_back(self._held_bytes)

    async def take(self, count: int, most: int) -> None:
        """Once there are `count` bytes of a body which may have `most`."""
        if count <= LARGE_BODY_BYTES or self._held_bytes:
            return
        if self._check:
            self._check()
        self.is_waiting = True
        await self._bodies.take(most)
        self._held_bytes, self.is_waiting = most, False
