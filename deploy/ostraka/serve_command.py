"""`ostraka serve`: one machine's cluster, from nothing to answering. Settings, then the steps before the supervisor."""

import argparse
import contextlib
import errno
import ipaddress
import os
import socket
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import structlog

from ostraka.cores import CoreLayout, Machine, plan_cores, read_machine
from ostraka.embedded_model import find_model
from ostraka.front_desk import FrontDesk
from ostraka.generation import Generation
from ostraka.generation_plan import first_generation, next_generation
from ostraka.ground import Ground
from ostraka.recycling import Recycling
from ostraka.rolling import Prepare, Rolling
from ostraka.run_dirs import private_run_dir
from ostraka.serve_config import ServeConfig
from ostraka.signals import taken_signals
from ostraka.succession import Succession
from ostraka.supervisor import Supervisor
from ostraka_gateway import auth
from ostraka_gateway.open_files import allow_open_files
from ostraka_shared.errors import ConfigError
from ostraka_shared.logs import configure_logs
from ostraka_shared.model_folder import ModelFolder, verified
from ostraka_shared.options import add_options, build_parser, read_settings
from ostraka_shared.setting_sources import refuse_unused, sources_named

log = structlog.get_logger()

BACKLOG = 2048
MEGABYTE = 1 << 20


def register(parser: argparse.ArgumentParser) -> None:
    add_options(parser, ServeConfig)


def run(values: argparse.Namespace) -> int:
    """Raises OstrakaError for whatever stands in the way."""
    configure_logs("supervisor", values.log_format, values.log_level)
    config = read_settings(ServeConfig, values)
    _refuse_unused(values, config)
    machine = read_machine()
    layout = _plan_layout(machine, config)
    keys = auth.load_keys(os.environ, config.http.api_keys_file)
    if not keys.names and not _is_loopback(config.host):
        log.warning("no_api_keys", host=config.host, hint="whoever reaches this address may use it")
    allow_open_files(config.http.connections, len(layout.workers), config.processes.gateways)
    with listen(config.host, config.port):
        pass  # a taken port is said before minutes of building, not after
    folder = find_model(config.model, config.cache_dir, config.precision)
    log.info("model", name=folder.spec.name, precision=folder.spec.precision, path=str(folder.path))
    folder = verified(folder)
    log.info("cores", workers=len(layout.workers), layout=layout.notes)
    with (
        taken_signals() as signals,
        listen(config.host, config.port) as listener,
        private_run_dir(config.run_dir) as run_dir,
    ):
        os.sched_setaffinity(0, layout.gateway)
        succession = Succession(first_generation(config, folder, layout, listener, run_dir))
        recycling = Recycling(config.processes.max_worker_rss_mb * MEGABYTE)
        with FrontDesk(run_dir) as desk:
            prepare = _prepare_next(config, machine, listener, run_dir)
            rolling = Rolling(desk, succession, prepare, config.stop.grace_s)
            ground = Ground(run_dir, desk, succession)
            return Supervisor(succession, rolling, listener, config.stop, recycling, ground).run(signals)


def _refuse_unused(values: argparse.Namespace, config: ServeConfig) -> None:
    if config.model:
        refuse_unused(values, "beside --model: nothing is built", "--cache-dir")
    if config.processes.cores_per_worker > 1 and config.processes.worker_start == "fork":
        refuse_unused(values, "fork with several --cores-per-worker: each loads its own", "--worker-start")
    if not config.cache.state_cache:
        refuse_unused(values, "with --state-cache 0", "--state-cache-tokens")
    if config.http.compat == "jevos":
        refuse_unused(values, "with --compat jevos, whose counts are jev's", "--choice-options", "--score-levels")


def _plan_layout(machine: Machine, config: ServeConfig) -> CoreLayout:
    asked = config.processes
    return plan_cores(machine, workers=asked.workers, cores_per_worker=asked.cores_per_worker, gateways=asked.gateways)


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
            raise ConfigError(f"cannot listen on http://{host}:{port}: {_describe_refusal(bad)}") from bad
        yield listener


def _describe_refusal(bad: OSError) -> str:
    if isinstance(bad, socket.gaierror):
        return f"--host is no address, and no name that is known here ({bad.strerror})"
    if bad.errno == errno.EADDRINUSE:
        return "the port is in use: give another --port, or stop who has it"
    if bad.errno == errno.EADDRNOTAVAIL:
        return "--host is not an address of this machine"
    return bad.strerror or str(bad)


def _prepare_next(config: ServeConfig, machine: Machine, listener: socket.socket, run_dir: Path) -> Prepare:
    """How another generation comes about. `machine`: as it was before this process kept to its own cores."""
    arguments = sys.argv[2:]

    def prepare(folder: ModelFolder, number: int) -> Generation:
        values = _parse_again(arguments)
        with sources_named(values):
            again = _read_again(values, config)
            layout = _plan_layout(machine, again)
            auth.load_keys(os.environ, again.http.api_keys_file)  # what is wrong with them is said now
            allow_open_files(again.http.connections, len(layout.workers), again.processes.gateways)
            return next_generation(number, again, folder, layout, listener, run_dir / str(number))

    return prepare


def _parse_again(arguments: list[str]) -> argparse.Namespace:
    """With variables and the config file as they are now. Raises ConfigError."""
    parser = build_parser("ostraka serve", "Run a gateway and its workers on this machine.")
    register(parser)
    try:
        values: argparse.Namespace = parser.parse_args(arguments)
    except SystemExit:
        raise ConfigError("the server's settings cannot be read any more: its log says why") from None
    return values


def _read_again(values: argparse.Namespace, before: ServeConfig) -> ServeConfig:
    """Less what cannot change while this process runs. Raises ConfigError."""
    now = read_settings(ServeConfig, values)
    return replace(now, host=before.host, port=before.port, run_dir=before.run_dir, stop=before.stop)
