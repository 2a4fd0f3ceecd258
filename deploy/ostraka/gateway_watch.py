"""Sees a gateway that stands still: it is alive for the system, holds its clients' connections, and answers nobody.

Its reports come from its event loop, several a second; a loop that moves sends them however busy it is. What silence
means is `stillness`'s to say.
"""

import signal
from collections.abc import Iterable

import structlog

from ostraka.gateway_child import GatewayChild
from ostraka_shared.core_times import read_core_times

log = structlog.get_logger()

FIRST_REPORT_S = 120.0
"""From a cold disk, Python's modules and a large tokenizer take a while."""
ASK_S = 0.4
"""Silent for so long, it is looked at closely: what it does with the cores costs some reads in /proc."""
POLL_S = 0.1
"""While one is."""


class GatewayWatch:
    """`now` is any monotonic clock's, in seconds, the same as the children's. `is_close`: to be called again within
    POLL_S."""

    def __init__(self) -> None:
        self.is_close = False

    def turn(self, doors: Iterable[GatewayChild], now: float) -> None:
        """To be called several times a second. Takes the reports of all `doors`, and kills who is silent for too long:
        whoever looks after it sees its end, and starts another."""
        self.is_close = False
        for door in doors:
            door.take_reports(now)
            if not door.is_running or door.control is None:  # it has ended, or is about to
                continue
            is_given_up = _is_given_up(door, now)
            self.is_close = self.is_close or (door.has_reported and door.stillness.unheard_s >= ASK_S)
            if is_given_up:
                _give_up(door, now)


def _is_given_up(door: GatewayChild, now: float) -> bool:
    stillness, pid = door.stillness, door.process.pid if door.process else 0
    times = read_core_times(pid) if door.has_reported and stillness.unheard_s >= ASK_S else None
    is_still = stillness.look(now, times)
    return is_still if door.has_reported else stillness.unheard_s > FIRST_REPORT_S


def _give_up(door: GatewayChild, now: float) -> None:
    log.warning(
        "gateway_silent",
        child=door.name,
        silent_s=round(door.stillness.unheard_s, 1),
        in_flight_requests=door.report.in_flight_requests,
        hint="it is killed",
    )
    door.stillness.heard(now)
    door.send(signal.SIGKILL)
