"""While nobody is let in, arrivals are taken in bunches, as a network card's are: the event loop looks away from its
clients until a worker speaks, who has to be heard anyway. So the caches, which a model call on the same core empties,
are loaded once for all of them.

    refused ──► what the loop has at hand, and what has arrived meanwhile ──► waits ──► all that has arrived
                                                a worker's message, or REST_S: ends it ┘

An answer waits for nothing; a probe, a report, an order or a new request for one rest at most, in each turn it needs.
"""

import asyncio
from collections.abc import Callable

REST_S = 0.01
"""At seven times the capacity a refusal takes 200 us of the gateway's time with it, 215 where the loop sleeps for 4 ms
instead, which delays workers too, and 262 without either."""
PATIENT_S = 0.5
"""Where so long a deadline is refused, who is let in waits for twenty rests at least, whatever the caution. A shorter
one tells nothing."""


class Lull:
    """`await_worker(seconds)`: returns when a worker speaks, or after that time. Nothing else happens meanwhile."""

    def __init__(self, await_worker: Callable[[float], None]) -> None:
        self._await_worker = await_worker
        self._is_near = False

    def follow(self, refused_deadline_s: float) -> None:
        """Not at once: what is being written leaves first, and whoever arrived beside the refused one has his turn."""
        if not self._is_near and refused_deadline_s >= PATIENT_S:
            self._is_near = True
            loop = asyncio.get_running_loop()
            loop.call_soon(loop.call_soon, self._rest)

    def _rest(self) -> None:
        self._is_near = False
        self._await_worker(REST_S)
