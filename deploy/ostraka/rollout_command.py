"""`ostraka rollout`: asks a server of this machine to go over to another model, and shows how that goes."""

import argparse
import contextlib
import json
import os
import socket
import sys
from dataclasses import asdict
from typing import Any

import psutil

from ostraka.front_desk import MESSAGE_BYTES, SOCKET_NAME
from ostraka.rollout import Phase, RolloutPlan
from ostraka.running_cluster import RunningCluster
from ostraka_shared.errors import ConfigError
from ostraka_shared.model_folder import open_folder, verify_folder
from ostraka_shared.options import add_options, expand_user, read_settings
from ostraka_shared.setting_sources import refuse_unused

EXIT_ABORTED = 1
FIGURES = ("requests", "mean_difference", "largest_difference", "flips", "errors", "unanswered", "latency_ratio")
"""Of the summary, what fits on a line."""
OF_COMPARING = ("--share", "--shadow-s", "--when-quiet", "--max-difference", "--max-flips")


def register(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", nargs="?", help="a model folder (default: the same, its files and settings as now)")
    parser.add_argument("--server", default="http://127.0.0.1:8017", metavar="URL", help="where the server answers")
    add_options(parser, RolloutPlan)


def run(values: argparse.Namespace) -> int:
    plan = read_settings(RolloutPlan, values)
    if not plan.requests:
        refuse_unused(values, "with --requests 0: nothing is compared", *OF_COMPARING)
    model = None
    if values.model is not None:
        model = expand_user(values.model).absolute()
        verify_folder(open_folder(model))  # a broken one is said at once, and not after it was loaded
    with _reach(RunningCluster(values.server).supervisor) as server:
        wish = {"model": None if model is None else str(model), "plan": asdict(plan)}
        with contextlib.suppress(BrokenPipeError):  # refused unread: the reason is there to be read
            server.send(json.dumps(wish).encode())
        try:
            return _follow(server)
        except KeyboardInterrupt:
            sys.stderr.write("\nostraka: interrupted; the rollout is given up, unless it was draining already\n")
            raise


def _reach(supervisor: psutil.Process) -> socket.socket:
    """Ctrl-C closes it, which the supervisor takes for a wish to stop. Raises ConfigError."""
    try:
        names = [str(found.laddr) for found in supervisor.net_connections("unix")]
        path = next(name for name in names if os.path.basename(name) == SOCKET_NAME)  # noqa: PTH119
    except (psutil.Error, StopIteration):
        raise ConfigError(
            "the server takes no orders: it is just starting or stopping, or of an older version"
        ) from None
    server = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        server.connect(path)
    except OSError as bad:
        server.close()
        raise ConfigError(f"the server cannot be reached at {path}: {bad.strerror}") from bad
    return server


def _follow(server: socket.socket) -> int:
    while message := _receive(server):
        said = json.loads(message)
        if "refused" in said:
            raise ConfigError(said["refused"])
        print(_describe(said) if sys.stdout.isatty() else json.dumps(said), flush=True)
        if said["phase"] == Phase.DONE:
            return 0
        if said["phase"] == Phase.ABORTED:
            return EXIT_ABORTED
    raise ConfigError("the server ended the connection: look at its log, and at /health for what serves now")


def _receive(server: socket.socket) -> bytes:
    """The next message; nothing at the end."""
    try:
        return server.recv(MESSAGE_BYTES)
    except ConnectionResetError:  # said once, before what had been sent until then
        return server.recv(MESSAGE_BYTES)


def _describe(said: dict[str, Any]) -> str:
    """A line for people: the phase, what it says of itself, and the figures."""
    figures = said.get("figures", {})
    told = [f"{name} {value}" for name, value in said.items() if name not in ("phase", "figures")]
    listed = [f"{name.replace('_', ' ')} {figures[name]:g}" for name in FIGURES if name in figures]
    return "  ".join([f"{said['phase']:<10}", *told, *listed]).rstrip()
