"""Gateways that are loaded and wait, each to take the place of one that stands still.

wanted ──start──► loading, waits ──told to serve──► in the gateway's place
                      └── not needed after all: killed, it holds nothing
"""

import signal
import time

import structlog

from ostraka.children import Child
from ostraka.gateway_child import GatewayChild
from ostraka.generation import Generation

log = structlog.get_logger()


def prepare_spare(generation: Generation, door: GatewayChild) -> None:
    """Once, however often it is asked for: one that cannot even load would not load the next time."""
    if door.name in generation.spares or generation.make_spare is None:
        return
    spare = generation.spares[door.name] = generation.make_spare(generation.gateways.index(door))
    try:
        spare.start()
    except OSError as bad:
        log.warning("no_spare", child=door.name, detail=str(bad))
    else:
        log.info("spare_started", child=door.name, silent_s=round(door.stillness.silent_s, 1))


def dismiss_spare(generation: Generation, name: str) -> None:
    """The gateway of that name needs it no more."""
    spare = generation.spares.pop(name, None)
    if spare and spare.is_running:
        generation.replaced.append(spare)
        spare.send(signal.SIGKILL)
        log.info("spare_dismissed", child=name)


def put_spare(generation: Generation, door: Child) -> bool:
    """In the place of a gateway that is dead or about to be. False where there is none."""
    spare = generation.spares.pop(door.name, None)
    if spare is None or not spare.is_running or not isinstance(door, GatewayChild):
        return False
    door.policy.count_death(time.monotonic() - door.started)
    spare.policy = door.policy
    spare.take_the_place_of(door)
    generation.gateways[generation.gateways.index(door)] = spare
    if door.is_running:
        generation.replaced.append(door)
    log.info("spare_serves", child=door.name)
    return True


def has_parted(generation: Generation, child: Child, code: str) -> bool:
    """Of a child that has ended: whether it was a spare, or one whose place is taken. A spare that died by itself stays
    where it was, as the sign not to try again."""
    if child in generation.replaced:
        generation.replaced.remove(child)
    elif child not in generation.spares.values():
        return False
    log.debug("child_stopped", child=child.name, code=code)
    return True
