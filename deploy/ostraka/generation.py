"""One set of processes with one model: gateways, zygotes and workers that know no others; and how a set leaves."""

import shutil
import signal
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import structlog

from ostraka.children import Child
from ostraka.forking import Zygote
from ostraka.gateway_child import GatewayChild
from ostraka_gateway.orders import Leave
from ostraka_gateway.shadow import Figures
from ostraka_shared.model_folder import ModelFolder

log = structlog.get_logger()


@dataclass(slots=True, eq=False)
class Generation:
    """`run_dir`: its own, removed with it; None where it uses the server's. `private_sockets`: one a gateway, on which
    the generation before reaches it; `figures_at`, where each says how it is."""

    number: int
    gateways: list[Child]
    workers: list[Child]
    zygotes: list[Zygote] = field(default_factory=list)
    model: ModelFolder | None = None
    run_dir: Path | None = None
    private_sockets: Sequence[str] = ()
    figures_at: Sequence[str] = ()
    is_serving: bool = False
    relieved: list[Child] = field(default_factory=list)
    """Workers whose replacement has come, or is about to."""

    def relieve(self, name: str) -> Child:
        """The new child that takes that worker's place; still to be started."""
        place = next(n for n, worker in enumerate(self.workers) if worker.name == name)
        before = self.workers[place]
        self.relieved.append(before)
        self.workers[place] = replace(before, process=None, restart_at=None, policy=replace(before.policy))
        return self.workers[place]

    @property
    def children(self) -> list[Child]:
        """Zygotes before their workers: one that is just being started can already be asked."""
        return [*self.gateways, *self.zygotes, *self.workers, *self.relieved]

    @property
    def doors(self) -> list[GatewayChild]:
        """The gateways, as those who take orders."""
        return [gateway for gateway in self.gateways if isinstance(gateway, GatewayChild)]

    @property
    def is_ready(self) -> bool:
        """Every worker at every gateway."""
        return all(door.report.ready_workers >= len(self.workers) for door in self.doors)

    @property
    def is_accepting(self) -> bool:
        return all(door.report.is_accepting for door in self.doors)

    @property
    def is_gone(self) -> bool:
        return not any(child.is_running or child.restart_at is not None for child in self.children)

    def figures(self) -> Figures:
        return sum((door.report.figures for door in self.doors), Figures())

    def remove_run_dir(self) -> None:
        if self.run_dir:
            shutil.rmtree(self.run_dir, ignore_errors=True)


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
