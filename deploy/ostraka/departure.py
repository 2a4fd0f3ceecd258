"""How a set of processes leaves, so that what it has taken is answered."""

import signal

import structlog

from ostraka.children import Child
from ostraka.gateway_child import GatewayChild
from ostraka.generation import Generation
from ostraka.stopping import WORKERS_LEAVE_S
from ostraka_gateway.orders import Leave

log = structlog.get_logger()


class Departure:
    """A generation's end: its gateways answer what they hold and give their connections to their successors, while its
    workers serve them; then these end, soon. What is left after `ends` is killed."""

    def __init__(self, generation: Generation, ends: float) -> None:
        self.generation = generation
        self.ends = ends
        self._are_workers_told = False
        for gateway in generation.gateways:
            gateway.restart_at = None
            # One that has not served yet may not even know what an order is.
            is_told = generation.is_serving and isinstance(gateway, GatewayChild) and gateway.order(Leave())
            if not is_told:
                gateway.send(signal.SIGTERM)

    def exited(self, child: Child, code: str) -> None:
        """A worker that dies while a gateway drains is replaced: it may hold the requests that are waited for."""
        if child in self.generation.workers and self.generation.has_gateway:
            child.schedule_restart(has_been_ready=True)
        is_loss = child in self.generation.gateways and code not in ("0", signal.SIGTERM.name)
        say = log.warning if is_loss else log.debug
        say("child_stopped", child=child.name, code=code, generation=self.generation.number)

    def turn(self, now: float) -> bool:
        """Whether nothing of it is left."""
        if not self.generation.has_gateway and not self._are_workers_told:
            self._are_workers_told = True
            end_workers(self.generation, signal.SIGTERM)
            self.ends = min(self.ends, now + WORKERS_LEAVE_S)
        if now >= self.ends and not self.generation.is_gone:
            left = [child.name for child in self.generation.children if child.is_running]
            log.warning("generation_killed", generation=self.generation.number, still_running=left)
            self.ends = float("inf")
            end_workers(self.generation, signal.SIGKILL)
            for gateway in self.generation.gateways:
                gateway.send(signal.SIGKILL)
        if not self.generation.is_gone:
            return False
        self.generation.remove_run_dir()
        return True


def end_workers(generation: Generation, number: signal.Signals) -> None:
    """None is started again. What forks them is killed: it holds nothing, and one that stands still would be waited for
    as long as those that do."""
    for child in (*generation.zygotes, *generation.workers, *generation.relieved):
        child.restart_at = None
        child.send(signal.SIGKILL if child in generation.zygotes else number)
