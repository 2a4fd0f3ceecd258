"""How a set of processes leaves, so that what it has taken is answered, and several at once."""

import signal

import structlog

from ostraka.children import Child
from ostraka.gateway_child import GatewayChild
from ostraka.generation import Generation
from ostraka_gateway.orders import Leave

log = structlog.get_logger()


class Departure:
    """A generation's end: its gateways answer what they hold and give their connections to their successors, while its
    workers serve them; then these end. What is left after `ends` is killed."""

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

    @property
    def _has_gateway(self) -> bool:
        return any(gateway.is_running for gateway in self.generation.gateways)

    def exited(self, child: Child, code: str) -> None:
        """A worker that dies while a gateway drains is replaced: it may hold the requests that are waited for."""
        if child in self.generation.workers and self._has_gateway:
            child.schedule_restart(has_been_ready=True)
        is_loss = child in self.generation.gateways and code not in ("0", signal.SIGTERM.name)
        say = log.warning if is_loss else log.debug
        say("child_stopped", child=child.name, code=code, generation=self.generation.number)

    def turn(self, now: float) -> bool:
        """Whether nothing of it is left."""
        if not self._has_gateway and not self._are_workers_told:
            self._are_workers_told = True
            self._tell_workers(signal.SIGTERM)
        if now >= self.ends and not self.generation.is_gone:
            left = [child.name for child in self.generation.children if child.is_running]
            log.warning("generation_killed", generation=self.generation.number, still_running=left)
            self.ends = float("inf")
            self._tell_workers(signal.SIGKILL)
            for gateway in self.generation.gateways:
                gateway.send(signal.SIGKILL)
        if not self.generation.is_gone:
            return False
        self.generation.remove_run_dir()
        return True

    def _tell_workers(self, number: signal.Signals) -> None:
        generation = self.generation
        for child in (*generation.zygotes, *generation.workers, *generation.relieved):
            child.restart_at = None
            child.send(number)


class Departures:
    """Those that are under way."""

    def __init__(self) -> None:
        self._all: list[Departure] = []

    @property
    def generations(self) -> list[Generation]:
        return [each.generation for each in self._all]

    def begin(self, generation: Generation, ends: float) -> None:
        self._all.append(Departure(generation, ends))

    def exited(self, child: Child, code: str) -> bool:
        """Whether it belonged to one of them."""
        for each in self._all:
            if child in each.generation.children:
                each.exited(child, code)
                return True
        return False

    def turn(self, now: float) -> list[Generation]:
        """Those of which nothing is left, once."""
        gone = [each for each in self._all if each.turn(now)]
        self._all = [each for each in self._all if each not in gone]
        return [each.generation for each in gone]
