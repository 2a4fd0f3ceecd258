"""Sees a gateway that stands still: it is alive for the system, holds its clients' connections, and answers nobody.

Its reports come from its event loop, one a second at least; a loop that moves sends them however busy it is.
"""

import signal
from collections.abc import Iterable

import structlog

from ostraka.gateway_child import GatewayChild

log = structlog.get_logger()

SILENT_S = 5.0
"""Five reports. Its clients see their connections closed then, and the default deadline leaves them time for another
try; a machine so busy that a loop has no turn for so long answers nobody in time anyway."""
FIRST_REPORT_S = 120.0
"""From a cold disk, Python's modules and a large tokenizer take a while."""
LATE_S = 2.0
"""Between two looks, more than this process ever waits: it stood still itself, and those it looks at may have too."""


class GatewayWatch:
    """`now` is any monotonic clock's, in seconds, the same as the children's."""

    def __init__(self) -> None:
        self._looked: float | None = None

    def turn(self, doors: Iterable[GatewayChild], now: float) -> None:
        """To be called at least every second. Takes their reports, and kills who is silent for too long: whoever looks
        after it starts another."""
        pause_s = 0.0 if self._looked is None else now - self._looked
        self._looked = now
        for door in doors:
            door.take_reports(now)
            if not door.is_running or door.control is None:  # it has ended, or is about to
                continue
            if pause_s > LATE_S:
                door.heard += pause_s
            patience_s = SILENT_S if door.has_reported else FIRST_REPORT_S
            if (silent_s := now - door.heard) > patience_s:
                log.warning("gateway_silent", child=door.name, silent_s=round(silent_s, 1), hint="it is killed")
                door.heard = now
                door.send(signal.SIGKILL)
