"""What the processes of one generation are started with."""

import random
import secrets
import shutil
import socket
from dataclasses import dataclass, replace
from pathlib import Path

from ostraka.children import Child
from ostraka.cores import CoreLayout
from ostraka.deaths import Deaths
from ostraka.forking import Zygote
from ostraka.gateway_child import GatewayChild
from ostraka.generation import Generation
from ostraka.restarts import RestartPolicy
from ostraka.serve_config import ServeConfig
from ostraka.stopping import WORKERS_LEAVE_S
from ostraka_gateway import auth
from ostraka_gateway.config import ClusterConfig, GatewayConfig, GatewayZygoteConfig, RolloutConfig
from ostraka_gateway.handover import SUFFIX
from ostraka_shared.addresses import (
    FRONT_FOLDER,
    METRICS_FOLDER,
    check_endpoint,
    figures_path,
    gateway_name,
    ipc_endpoint,
)
from ostraka_shared.errors import ConfigError, OstrakaError
from ostraka_shared.front_files import read_front, write_front
from ostraka_shared.model_folder import ModelFolder
from ostraka_shared.options import to_flags
from ostraka_worker.config import WorkerConfig, ZygoteConfig

GATEWAY_GRACE_SHARE = 0.8
"""Of the grace period: the workers leave after the gateway has, and need a moment too."""

GATEWAY_SPARE_SILENT_S = 1.0
"""It has nothing to do before it speaks, within 10 ms. One that does not is given up for the next one."""

ZYGOTE_DELAY_S = 30.0
"""At most between two that die as they load, as for want of memory: whoever is to be forked meanwhile loads for itself,
and those that serve are not to pay for a load each second."""


@dataclass(frozen=True)
class ClusterPlan:
    """What all children of one generation are told. `endpoints`: where each gateway awaits its workers; `figures_at`:
    where it tells its figures; `private_sockets`: where the generation before reaches it, if there is one."""

    config: ServeConfig
    folder: ModelFolder
    layout: CoreLayout
    run_dir: Path
    cluster_id: str
    private_sockets: tuple[str, ...] = ()

    @property
    def endpoints(self) -> tuple[str, ...]:
        return tuple(ipc_endpoint(self.run_dir, number) for number in range(self.config.processes.gateways))

    @property
    def figures_at(self) -> tuple[str, ...]:
        return tuple(figures_path(self.run_dir, number) for number in range(self.config.processes.gateways))


def first_generation(
    config: ServeConfig, folder: ModelFolder, layout: CoreLayout, listener: socket.socket, run_dir: Path
) -> Generation:
    """Its sockets lie in the server's own run directory. Raises ConfigError."""
    cluster = ClusterPlan(config, folder, layout, run_dir, secrets.token_hex(8))
    generation = _make_generation(1, cluster, listener)
    generation.is_serving = True
    return generation


def next_generation(
    number: int, config: ServeConfig, folder: ModelFolder, layout: CoreLayout, listener: socket.socket, run_dir: Path
) -> Generation:
    """`run_dir`: the generation's own, which is made here, and left only with a generation. Raises ConfigError or
    OSError."""
    shutil.rmtree(run_dir, ignore_errors=True)  # of a server that was killed
    run_dir.mkdir(mode=0o700)
    try:
        sockets = tuple(str(run_dir / f"{gateway_name(n)}.sock") for n in range(config.processes.gateways))
        for path in sockets:
            check_endpoint(f"ipc://{path}{SUFFIX}")
        cluster = ClusterPlan(config, folder, layout, run_dir, secrets.token_hex(8), sockets)
        generation = _make_generation(number, cluster, listener)
    except (OstrakaError, OSError):
        shutil.rmtree(run_dir, ignore_errors=True)
        raise
    generation.run_dir, generation.private_sockets = run_dir, sockets
    return generation


def _make_generation(number: int, cluster: ClusterPlan, listener: socket.socket) -> Generation:
    _clear_counts(cluster.run_dir / METRICS_FOLDER)
    front = read_front(cluster.folder)
    try:
        write_front(front, cluster.run_dir / FRONT_FOLDER)
    except OSError as bad:  # of a full disk the system does not say which
        raise ConfigError(f"--run-dir {cluster.run_dir}: {bad.strerror}") from bad
    for endpoint in cluster.endpoints:
        check_endpoint(endpoint)
    zygotes = make_zygotes(cluster.config, cluster.folder, cluster.layout)
    workers = [_worker_child(n, cluster) for n in range(len(cluster.layout.workers))]
    deaths = Deaths(cluster.run_dir)
    for worker, node in zip(workers, cluster.layout.nodes, strict=True):
        worker.on_end = deaths.note
        worker.fork_from = zygotes[node].fork if node in zygotes else None
    gateway_zygote = _make_gateway_zygote(number, cluster)
    generation = Generation(number, [], workers, [gateway_zygote, *zygotes.values()], model=cluster.folder, front=front)
    generation.figures_at = cluster.figures_at
    generation.workers_at = [endpoint.removeprefix("ipc://") for endpoint in cluster.endpoints]
    generation.gateways = [
        _gateway_child(n, generation, cluster, listener) for n in range(cluster.config.processes.gateways)
    ]
    for gateway in generation.gateways:
        gateway.fork_from = gateway_zygote.fork
    return generation


def _clear_counts(folder: Path) -> None:
    """An earlier server's are not ours; whatever else is there is not ours to remove."""
    folder.mkdir(mode=0o700, exist_ok=True)
    for counts in folder.glob("*_gateway*.db"):
        counts.unlink()


def _gateway_child(number: int, generation: Generation, cluster: ClusterPlan, listener: socket.socket) -> GatewayChild:
    config = cluster.config
    settings = GatewayConfig(
        workers_at=cluster.endpoints[number],
        model=str(cluster.folder.path),
        listen_fd=listener.fileno(),
        figures_at=cluster.figures_at,
        number=number,
        cluster=ClusterConfig(cluster.cluster_id, len(cluster.layout.workers), str(cluster.run_dir / FRONT_FOLDER)),
        deadline_ms=config.deadline_ms,
        queue_tokens=config.queue_tokens,
        answer_cache_bytes=config.answer_cache_bytes,
        grace_s=_gateway_grace_s(config.stop.grace_s),
        http=config.http,
        log_format=config.log_format,
        log_level=config.log_level,
    )

    def command(_: int) -> list[str]:
        is_next = bool(cluster.private_sockets) and not generation.is_serving
        private_socket = cluster.private_sockets[number] if is_next else None
        rollout = RolloutConfig(child.pass_fds[-1], private_socket, generation.number, standby=is_next)
        now = replace(settings, rollout=rollout)
        return ["-m", "ostraka_gateway", *to_flags(now)]

    passed = (listener.fileno(),)
    child = GatewayChild(gateway_name(number), command, RestartPolicy(random.random), inherited_fds=passed)
    return child


def _make_gateway_zygote(number: int, cluster: ClusterPlan) -> Zygote:
    """Of that generation, for all its gateways."""
    config = cluster.config

    def command(_: int) -> list[str]:
        settings = GatewayZygoteConfig(
            model=str(cluster.folder.path),
            control_fd=zygote.pass_fds[-1],
            figures_at=cluster.figures_at,
            generation=number,
            model_front=str(cluster.run_dir / FRONT_FOLDER),
            name=config.http.name,
            limits=config.http.limits,
            log_format=config.log_format,
            log_level=config.log_level,
        )
        return ["-m", "ostraka_gateway.zygote", *to_flags(settings)]

    policy = RestartPolicy(random.random, ZYGOTE_DELAY_S)
    zygote = Zygote("gateway zygote", command, policy, spare_silent_s=GATEWAY_SPARE_SILENT_S)
    return zygote


def _gateway_grace_s(grace_s: float) -> float:
    return max(0.0, min(grace_s * GATEWAY_GRACE_SHARE, grace_s - WORKERS_LEAVE_S))


def make_zygotes(config: ServeConfig, folder: ModelFolder, layout: CoreLayout) -> dict[int, Zygote]:
    """One for each NUMA node that has workers, by the node: memory is shared where it is near.

    None where workers have several threads, which a fork would lose.
    """
    if config.processes.worker_start == "load" or max(map(len, layout.workers)) > 1:
        return {}
    return {node: _make_zygote(node, config, folder, layout) for node in sorted(set(layout.nodes))}


def _make_zygote(node: int, config: ServeConfig, folder: ModelFolder, layout: CoreLayout) -> Zygote:
    cores = [core for at, cores in zip(layout.nodes, layout.workers, strict=True) if at == node for core in cores]

    def command(incarnation: int) -> list[str]:
        settings = ZygoteConfig(
            model=str(folder.path),
            control_fd=zygote.pass_fds[-1],
            seal=_seal_for(incarnation, folder),
            cores=tuple(cores) if layout.is_pinned else (),
            log_format=config.log_format,
            log_level=config.log_level,
        )
        return ["-m", "ostraka_worker.zygote", *to_flags(settings)]

    zygote = Zygote(f"zygote {node}", command, RestartPolicy(random.random, ZYGOTE_DELAY_S), withheld=auth.VARIABLES)
    return zygote


def _seal_for(incarnation: int, folder: ModelFolder) -> str | None:
    """For the first start, a moment after the folder was hashed. A later one reads the files anew from the disk."""
    return folder.seal if incarnation == 1 and folder.seal else None


def _worker_child(number: int, cluster: ClusterPlan) -> Child:
    config, layout = cluster.config, cluster.layout
    cores = layout.workers[number]

    def command(incarnation: int) -> list[str]:
        worker = WorkerConfig(
            gateway=cluster.endpoints,
            model=str(cluster.folder.path),
            seal=_seal_for(incarnation, cluster.folder),
            worker_id=f"w{number}",
            cluster_id=cluster.cluster_id,
            incarnation=incarnation,
            cores=cores if layout.is_pinned else (),
            threads=len(cores),
            batch_tokens=config.batch_tokens,
            cache=config.cache,
            idle_call_s=config.processes.idle_call_s,
            log_format=config.log_format,
            log_level=config.log_level,
        )
        return ["-m", "ostraka_worker", *to_flags(worker)]

    return Child(f"w{number}", command, RestartPolicy(random.random), withheld=auth.VARIABLES)
