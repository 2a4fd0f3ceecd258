"""`ostraka serve`: one machine's cluster, from nothing to answering. Settings, then the steps before the supervisor."""

import argparse
import contextlib
import fcntl
import ipaddress
import os
import random
import secrets
import shutil
import socket
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import structlog

from ostraka.children import Child
from ostraka.cores import CoreLayout, plan_cores, read_machine
from ostraka.deaths import Deaths
from ostraka.embedded_model import find_model
from ostraka.forking import Zygote
from ostraka.restarts import RestartPolicy
from ostraka.signals import taken_signals
from ostraka.supervisor import Supervisor
from ostraka_gateway import auth
from ostraka_gateway.config import DEFAULT_DEADLINE_MS, DEFAULT_QUEUE_TOKENS, GatewayConfig, check_deadline
from ostraka_gateway.http_config import HttpConfig
from ostraka_gateway.open_files import allow_open_files
from ostraka_shared.addresses import METRICS_FOLDER, check_endpoint, figures_path, gateway_name, ipc_endpoint
from ostraka_shared.errors import ConfigError
from ostraka_shared.logs import configure_logs
from ostraka_shared.model_folder import ModelFolder, verify_folder
from ostraka_shared.options import add_options, check_at_least, expand_user, group, option, read_settings, to_flags
from ostraka_worker.build.catalog import DEFAULT_PRECISION, PRECISIONS
from ostraka_worker.config import (
    DEFAULT_BATCH_TOKENS,
    DEFAULT_IDLE_CALL_S,
    StateCacheConfig,
    WorkerConfig,
    ZygoteConfig,
)

log = structlog.get_logger()

BACKLOG = 2048
GATEWAY_GRACE_SHARE = 0.8
"""Of the grace period: the workers leave after the gateway has, and need a moment too."""


@dataclass(frozen=True)
class ProcessesConfig:
    gateways: int = option(1, "gateway processes on the port: more answer more requests a second of small models")
    workers: int | None = option(None, "worker processes; by default one for each core that may be used")
    cores_per_worker: int = option(1, "cores of each worker: more answer one request sooner, but fewer in all")
    worker_start: str = option(
        "fork",
        "fork: workers share the memory of one loaded model, if each has one core; load: each loads its own",
        choices=("fork", "load"),
    )
    idle_call_s: float = option(
        DEFAULT_IDLE_CALL_S, "seconds without work before a short call keeps the model in the CPU's caches; 0: never"
    )

    def __post_init__(self) -> None:
        check_at_least(1, self, "gateways")
        check_at_least(0, self, "idle_call_s")


@dataclass(frozen=True)
class ServeConfig:
    host: str = option("127.0.0.1", "address to listen on")
    port: int = option(8017, "port to listen on; 0 takes a free one")
    processes: ProcessesConfig = group(ProcessesConfig)
    model: str | None = option(None, "a model folder; by default the embedded model, built when it is missing")
    precision: str = option(DEFAULT_PRECISION, "the embedded model's arithmetic", choices=PRECISIONS)
    cache_dir: str = option("~/.cache/ostraka", "where downloads and built models are kept")
    batch_tokens: int = option(DEFAULT_BATCH_TOKENS, "most tokens a worker reads together in one batch")
    cache: StateCacheConfig = group(StateCacheConfig)
    queue_tokens: int = option(DEFAULT_QUEUE_TOKENS, "most tokens waiting for a worker; more is refused with 529")
    answer_cache_bytes: int = option(0, "bytes of answers kept, so as not to work them out again; 0 keeps none")
    deadline_ms: int = option(DEFAULT_DEADLINE_MS, "how long a request may take, unless its x-deadline-ms differs")
    grace_s: float = option(25.0, "how long a drain may take before what is left is killed, in seconds")
    http: HttpConfig = group(HttpConfig)
    run_dir: str | None = option(None, "folder for the workers' socket, mode 0700; by default a fresh one")
    log_format: str = option("auto", "how log lines look; auto: text on a terminal", choices=("auto", "json", "text"))
    log_level: str = option("info", "least severity logged", choices=("debug", "info", "warning", "error"))

    def __post_init__(self) -> None:
        if not self.host:
            raise ValueError("--host is empty: 127.0.0.1 is this machine alone, 0.0.0.0 every address it has")
        if not 0 <= self.port <= 65535:
            raise ValueError(f"--port must be from 0 to 65535, not {self.port}")
        # Said now, and not by a child after the model was built.
        check_at_least(1, self, "batch_tokens", "queue_tokens", "deadline_ms")
        check_deadline(self.deadline_ms)
        check_at_least(0, self, "grace_s", "answer_cache_bytes")


@dataclass(frozen=True)
class ClusterPlan:
    """What all children of one supervisor are told. `endpoints`: where each gateway awaits its workers; `figures_at`:
    where it tells its figures."""

    config: ServeConfig
    folder: ModelFolder
    layout: CoreLayout
    cluster_id: str
    run_dir: Path

    @property
    def endpoints(self) -> tuple[str, ...]:
        return tuple(ipc_endpoint(self.run_dir, number) for number in range(self.config.processes.gateways))

    @property
    def figures_at(self) -> tuple[str, ...]:
        return tuple(figures_path(self.run_dir, number) for number in range(self.config.processes.gateways))


def register(parser: argparse.ArgumentParser) -> None:
    add_options(parser, ServeConfig)


def run(values: argparse.Namespace) -> int:
    """Raises OstrakaError for whatever stands in the way."""
    configure_logs("supervisor", values.log_format, values.log_level)
    config = read_settings(ServeConfig, values)
    layout = plan_cores(
        read_machine(),
        workers=config.processes.workers,
        cores_per_worker=config.processes.cores_per_worker,
        gateways=config.processes.gateways,
    )
    keys = auth.load_keys(os.environ, config.http.api_keys_file)
    if not keys.names and not _is_loopback(config.host):
        log.warning("no_api_keys", host=config.host, hint="whoever reaches this address may use it")
    allow_open_files(config.http.connections)
    with listen(config.host, config.port):
        pass  # a taken port is said before minutes of building, not after
    folder = find_model(config.model, config.cache_dir, config.precision)
    log.info("model", name=folder.spec.name, precision=folder.spec.precision, path=str(folder.path))
    verify_folder(folder)
    log.info("cores", workers=len(layout.workers), layout=layout.notes)
    with (
        taken_signals() as signals,
        listen(config.host, config.port) as listener,
        private_run_dir(config.run_dir) as run_dir,
    ):
        os.sched_setaffinity(0, layout.gateway)
        return build_supervisor(config, folder, layout, listener, run_dir).run(signals)


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


@contextlib.contextmanager
def listen(host: str, port: int) -> Iterator[socket.socket]:
    """The supervisor holds the listening socket, so that clients wait, not fail, while a gateway is restarted."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((host, port))
            listener.listen(BACKLOG)
        except OSError as bad:
            raise ConfigError(
                f"cannot listen on http://{host}:{port}: the port is in use or the address is not this machine's "
                f"({bad.strerror})"
            ) from bad
        yield listener


@contextlib.contextmanager
def private_run_dir(asked: str | None) -> Iterator[Path]:
    """A fresh folder is ours to remove; one that was asked for stays."""
    if asked is not None:
        folder = expand_user(asked).absolute()
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as bad:
            raise ConfigError(f"--run-dir {folder}: {bad.strerror}") from bad
        check_endpoint(ipc_endpoint(folder))
        with _locked(folder):
            yield folder
        return
    fresh = _make_run_dir()
    try:
        check_endpoint(ipc_endpoint(fresh))
        yield fresh
    finally:
        shutil.rmtree(fresh, ignore_errors=True)


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """A second server would bind over the first one's socket, and take its workers."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    except BlockingIOError:
        raise ConfigError(f"--run-dir {folder} is in use by another server: give each its own") from None
    finally:
        os.close(descriptor)


def _make_run_dir() -> Path:
    try:
        return Path(tempfile.mkdtemp(prefix="ostraka-", dir=os.environ.get("XDG_RUNTIME_DIR") or None))
    except OSError:  # the variable survives its session, and sudo
        return Path(tempfile.mkdtemp(prefix="ostraka-"))


def build_supervisor(
    config: ServeConfig, folder: ModelFolder, layout: CoreLayout, listener: socket.socket, run_dir: Path
) -> Supervisor:
    cluster = ClusterPlan(config, folder, layout, secrets.token_hex(8), run_dir)
    _clear_counts(run_dir / METRICS_FOLDER)
    for endpoint in cluster.endpoints:
        check_endpoint(endpoint)
    gateways = [_gateway_child(number, cluster, listener) for number in range(config.processes.gateways)]
    zygotes = make_zygotes(config, folder, layout)
    workers = [_worker_child(number, cluster) for number in range(len(layout.workers))]
    deaths = Deaths(run_dir)
    for worker, node in zip(workers, layout.nodes, strict=True):
        worker.on_end = deaths.note
        worker.fork_from = zygotes[node].fork if node in zygotes else None
    return Supervisor(gateways, workers, listener, cluster.figures_at, config.grace_s, list(zygotes.values()))


def _clear_counts(folder: Path) -> None:
    """An earlier server's are not ours; whatever else is there is not ours to remove."""
    folder.mkdir(mode=0o700, exist_ok=True)
    for counts in folder.glob("*_gateway*.db"):
        counts.unlink()


def _gateway_child(number: int, cluster: ClusterPlan, listener: socket.socket) -> Child:
    config = cluster.config
    gateway = GatewayConfig(
        workers_at=cluster.endpoints[number],
        model=str(cluster.folder.path),
        listen_fd=listener.fileno(),
        figures_at=cluster.figures_at,
        number=number,
        cluster_id=cluster.cluster_id,
        deadline_ms=config.deadline_ms,
        queue_tokens=config.queue_tokens,
        answer_cache_bytes=config.answer_cache_bytes,
        grace_s=config.grace_s * GATEWAY_GRACE_SHARE,
        http=config.http,
        log_format=config.log_format,
        log_level=config.log_level,
    )
    return Child(
        gateway_name(number),
        lambda _: ["-m", "ostraka_gateway", *to_flags(gateway)],
        RestartPolicy(random.random),
        pass_fds=(listener.fileno(),),
    )


def make_zygotes(config: ServeConfig, folder: ModelFolder, layout: CoreLayout) -> dict[int, Zygote]:
    """One for each NUMA node that has workers, by the node: memory is shared where it is near.

    None where workers have several threads, which a fork would lose.
    """
    if config.processes.worker_start == "load" or max(map(len, layout.workers)) > 1:
        return {}
    return {node: _make_zygote(node, config, folder, layout) for node in sorted(set(layout.nodes))}


def _make_zygote(node: int, config: ServeConfig, folder: ModelFolder, layout: CoreLayout) -> Zygote:
    cores = [core for at, cores in zip(layout.nodes, layout.workers, strict=True) if at == node for core in cores]

    def command(_: int) -> list[str]:
        settings = ZygoteConfig(
            model=str(folder.path),
            control_fd=zygote.pass_fds[0],
            cores=tuple(cores) if layout.is_pinned else (),
            log_format=config.log_format,
            log_level=config.log_level,
        )
        return ["-m", "ostraka_worker.zygote", *to_flags(settings)]

    zygote = Zygote(f"zygote {node}", command, RestartPolicy(random.random), withheld=auth.VARIABLES)
    return zygote


def _worker_child(number: int, cluster: ClusterPlan) -> Child:
    config, layout = cluster.config, cluster.layout
    cores = layout.workers[number]

    def command(incarnation: int) -> list[str]:
        worker = WorkerConfig(
            gateway=cluster.endpoints,
            model=str(cluster.folder.path),
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
