"""One set of processes with one model: gateways, zygotes and workers that know no others."""

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from ostraka.children import Child
from ostraka.forking import Zygote
from ostraka.gateway_child import GatewayChild
from ostraka_gateway.orders import Accept, Announce, Assist
from ostraka_gateway.shadow import Figures
from ostraka_shared.model_folder import ModelFolder


@dataclass(slots=True, eq=False)
class Generation:
    """`run_dir`: its own, removed with it; None where it uses the server's. `private_sockets`: one a gateway, on which
    the generation before reaches it; `figures_at`, where each says how it is; `workers_at`, where workers dial it."""

    number: int
    gateways: list[Child]
    workers: list[Child]
    zygotes: list[Zygote] = field(default_factory=list)
    model: ModelFolder | None = None
    run_dir: Path | None = None
    private_sockets: Sequence[str] = ()
    figures_at: Sequence[str] = ()
    workers_at: Sequence[str] = ()
    front: Mapping[str, bytes] = field(default_factory=dict, repr=False)
    """The model's small files, for its gateways."""
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
        """Zygotes before their forks: one that is just being started can already be asked."""
        return [*self.zygotes, *self.gateways, *self.workers, *self.relieved]

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
    def has_gateway(self) -> bool:
        return any(gateway.is_running for gateway in self.gateways)

    @property
    def is_gone(self) -> bool:
        return not any(child.is_running or child.restart_at is not None for child in self.children)

    def assist(self, successors: Sequence[str], *, mirrored: float = 0.0, passed_on: float = 0.0) -> None:
        """Its gateways share their work with those on these private sockets; with nobody where there are none. One that
        cannot be told is about to be seen dead, which ends the rollout."""
        for number, door in enumerate(self.doors):
            to = successors[number % len(successors)] if successors else None
            door.order(Assist(to, mirrored, passed_on))

    def accept(self) -> str | None:
        """Its gateways take connections; the name of one that cannot be told."""
        return next((door.name for door in self.doors if not door.order(Accept())), None)

    def announce(self) -> None:
        """Its gateways say that they are about to leave, and answer as before."""
        for door in self.doors:
            door.order(Announce())

    def figures(self) -> Figures:
        return sum((door.report.figures for door in self.doors), Figures())

    def remove_run_dir(self) -> None:
        if self.run_dir:
            shutil.rmtree(self.run_dir, ignore_errors=True)
