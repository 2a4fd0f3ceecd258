"""While nobody is let in, arrivals are taken in bunches, as a network card's are: after a refusal the event loop rests,
so that the caches, which a model call on the same core empties, are loaded once for several of them."""

import asyncio
import time
from collections.abc import Callable

REST_S = 0.004
"""At three times the capacity the gateway takes 32 % of a core with it, 35 without; 6 and 8 ms save a point more."""
PATIENT_S = 0.5
"""Where so long a deadline is refused, who is let in waits for fifty rests at least; a shorter one tells nothing."""
CALLS = 4
"""A worker has another batch beside the one it runs: its result may lie for a quarter of that."""


class Lull:
    """`full_call_s`: what a call over a full batch takes; 0 where nobody knows, and then there is no rest."""

    def __init__(self, full_call_s: Callable[[], float], sleep: Callable[[float], None] = time.sleep) -> None:
        self._full_call_s = full_call_s
        self._sleep = sleep
        self._is_near = False

    def follow(self, refused_deadline_s: float) -> None:
        """Once a turn of the loop, when what is being written has left."""
        if not self._is_near and refused_deadline_s >= PATIENT_S:
            self._is_near = True
            asyncio.get_running_loop().call_soon(self._rest)

    def _rest(self) -> None:
        self._is_near = False
        if rest_s := min(REST_S, self._full_call_s() / CALLS):
            self._sleep(rest_s)
