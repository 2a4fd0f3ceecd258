"""Sees a gateway that stands still: it is alive for the system, holds its clients' connections, and answers nobody.

Its reports come from its event loop, several a second; a loop that moves sends them however busy it is. What silence
means is `stillness`'s to say: a spare is started in time, and takes the place of one that is given up.
"""

import signal
from collections.abc import Iterable

import structlog

from ostraka.core_times import read_core_times
from ostraka.gateway_child import GatewayChild
from ostraka.generation import Generation
from ostraka.spares import dismiss_spare, prepare_spare, put_spare
from ostraka.stillness import Verdict

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

    def turn(self, serving: Generation, doors: Iterable[GatewayChild], now: float, *, may_replace: bool) -> bool:
        """To be called several times a second. Takes the reports of all `doors`, and kills who is silent for too long;
        unless a spare takes its place, whoever looks after it starts another. Whether one did."""
        self.is_close = has_replaced = False
        for door in doors:
            door.take_reports(now)
            if not door.is_running or door.control is None:  # it has ended, or is about to
                continue
            verdict = _judge(door, now)
            self.is_close = self.is_close or verdict is Verdict.DOUBTED
            has_spare = may_replace and door in serving.gateways
            if verdict is Verdict.GIVEN_UP:
                _give_up(door, now)
                has_replaced = (has_spare and put_spare(serving, door)) or has_replaced
            elif has_spare and verdict is Verdict.DOUBTED:
                prepare_spare(serving, door)
            elif door.name in serving.spares and door in serving.gateways and not door.stillness.wants_spare(now):
                dismiss_spare(serving, door.name)
        return has_replaced


def _judge(door: GatewayChild, now: float) -> Verdict:
    stillness, pid = door.stillness, door.process.pid if door.process else 0
    times = read_core_times(pid) if door.has_reported and stillness.unheard_s >= ASK_S else None
    verdict = stillness.look(now, times)
    if door.has_reported:
        return verdict
    return Verdict.GIVEN_UP if stillness.unheard_s > FIRST_REPORT_S else Verdict.MOVING


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
