"""While nobody is let in, a request is refused as soon as it is here: no task, no layers.

    head ──► held to the end of its packet ──► others were just refused, and not all is here ──► held for its rest
                         │                                             │ HOLD_S, or its connection ends │
                         └► refused, or the application's ◄────────────┴────────────────────────────────┘

In most seconds nobody is refused, and nothing is asked here that the application asks again.
"""

import asyncio
from typing import ClassVar, Protocol

from starlette.types import Scope
from uvicorn._types import ASGI3Application
from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

from ostraka_gateway.leaving_protocol import LeavingProtocol

HOLD_S = 0.02
"""Many clients send head and body apart, the official SDK's too, some 0.1 ms from each other."""


class Refusals(Protocol):
    def is_likely(self) -> bool: ...

    def answer(self, scope: Scope, body: bytes) -> bytes | None:
        """The whole answer to a request, or None where the application has to look."""


class RefusingProtocol(LeavingProtocol):
    refusals: ClassVar[Refusals | None] = None
    _is_reading: bool = False
    _held: tuple[RequestResponseCycle, ASGI3Application] | None = None
    _hold_timer: asyncio.TimerHandle | None = None

    def connection_lost(self, exc: Exception | None) -> None:
        self._start_held()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        self._is_reading = True
        super().data_received(data)
        self._is_reading = False
        if self._held:
            self._decide(self._held[0])

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: ASGI3Application) -> None:
        """A task begins once the packet is read, whenever it is made."""
        if self._is_reading:
            self._held = (cycle, app)
        else:
            super()._start_asgi_task(cycle, app)

    def _decide(self, cycle: RequestResponseCycle) -> None:
        is_last = self.cycle is cycle and not self._head.is_open
        can_refuse = is_last and cycle.keep_alive and not (self.flow.write_paused or self.transport.is_closing())
        if not (self.refusals and can_refuse and self.refusals.is_likely()):
            self._start_held()
        elif not cycle.more_body:
            if answer := self.refusals.answer(cycle.scope, bytes(cycle.body)):  # type: ignore[arg-type]
                self._refuse_held(answer)
            else:
                self._start_held()
        elif cycle.waiting_for_100_continue:
            self._start_held()
        elif not self._hold_timer:
            self._hold_timer = self.loop.call_later(HOLD_S, self._start_held)

    def _refuse_held(self, answer: bytes) -> None:
        cycle, _ = self._end_hold()
        cycle.response_started = cycle.response_complete = True
        self.transport.write(answer)
        self.on_response_complete()

    def _start_held(self) -> None:
        if self._held:
            super()._start_asgi_task(*self._end_hold())

    def _end_hold(self) -> tuple[RequestResponseCycle, ASGI3Application]:
        assert self._held  # noqa: S101  for mypy
        held, self._held = self._held, None
        if self._hold_timer:
            self._hold_timer.cancel()
            self._hold_timer = None
        return held


def protocol_for(read_timeout_s: float, connections: int, refusals: Refusals | None = None) -> type[RefusingProtocol]:
    """A class, because uvicorn makes one object for each connection and passes settings of its own only."""
    settings = {"read_timeout_s": read_timeout_s, "connections_max": connections, "refusals": refusals}
    return type("Protocol", (RefusingProtocol,), settings)
