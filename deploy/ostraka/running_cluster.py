"""Finds a server of this machine by the address it answers on, and proves which processes are its own.

    address ── its listening socket ──► supervisor ── descendants ──► gateway, workers ◄── named by the gateways

A pid is the word of whoever answers, and may have been given to another process since. So each process is held by a
pidfd first, and then it must descend from the `ostraka serve` that listens there. Nothing else is ever touched.
"""

import contextlib
import json
import os
import re
import select
import signal
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import psutil

from ostraka.addresses import read_url
from ostraka_shared.addresses import gateway_name
from ostraka_shared.errors import ConfigError

FIGURES_TIMEOUT_S = 2.0
PIECE_BYTES = 1 << 16
GATEWAY_MODULES = {"ostraka_gateway", "ostraka_gateway.zygote"}
GATEWAY_NAME = re.compile("ostraka g([0-9]+)", re.ASCII)
ANY_ADDRESS = ("0.0.0.0", "::")  # noqa: S104  compared with, not listened on


@dataclass(frozen=True, slots=True)
class HeldProcess:
    """`pidfd` names this one process for as long as it is open, whatever becomes of the pid."""

    name: str
    pid: int
    pidfd: int

    def send(self, number: signal.Signals) -> bool:
        """False if it has ended."""
        try:
            signal.pidfd_send_signal(self.pidfd, number)
        except ProcessLookupError:
            return False
        return True

    def ends_within(self, timeout_s: float) -> bool:
        readable, _, _ = select.select([self.pidfd], [], [], max(0.0, timeout_s))
        return bool(readable)


class RunningCluster:
    """`url` is where it answers. Raises ConfigError where no server of this machine and user can be found there."""

    def __init__(self, url: str) -> None:
        parts = read_url(url)
        if parts.scheme != "http":
            raise ConfigError("--server is not an address like http://127.0.0.1:8017")
        self.supervisor = _find_supervisor(_resolve(parts.hostname or ""), parts.port or 80, url)

    def workers(self) -> dict[str, int]:
        """The pid of each worker by its name, as its gateways say, each on its own socket: on the port, the one that
        takes the next connection would speak for its own generation. While a rollout has two of them running, each
        name says which it means: w0@1, w0@2. Raises ConfigError where no gateway speaks."""
        found: dict[tuple[int, str], tuple[int, int]] = {}
        doors, heard = self._doors(), False
        is_plain = len({generation for generation, _ in doors}) <= 1
        for (generation, _), process in doors.items():
            for worker in (told := _figures_of(process)) or ():
                place, newest = (generation, worker["worker"]), (worker["incarnation"], worker["pid"])
                found[place] = max(found.get(place, newest), newest)
            heard = heard or told is not None
        if not heard:
            raise ConfigError("no gateway of the server says which workers it has: they are just starting, or hang")
        return {_name_of(place[1], place[0], is_plain=is_plain): found[place][1] for place in sorted(found)}

    def gateways(self) -> dict[str, int]:
        """As `workers`, from what the supervisor runs, by the names that its log has: gateway@1, gateway@2."""
        found = self._doors()
        is_plain = len({generation for generation, _ in found}) <= 1
        return {_name_of(gateway_name(n), of, is_plain=is_plain): found[of, n].pid for of, n in sorted(found)}

    def _doors(self) -> dict[tuple[int, int], psutil.Process]:
        """Gateways by generation and number."""
        youngest_last = sorted(self._descendants(), key=_born)
        return {place: child for child in youngest_last if (place := _gateway_place(child))}

    @contextlib.contextmanager
    def hold(self, name: str, pid: int) -> Iterator[HeldProcess]:
        """Raises ConfigError where that process is not the server's own."""
        try:
            pidfd = os.pidfd_open(pid)
        except OSError as bad:
            raise ConfigError(f"{name} (pid {pid}) cannot be held: {bad.strerror}") from bad
        try:
            if pid not in {child.pid for child in self._descendants()}:
                raise ConfigError(f"pid {pid}, said to be {name}, is no process of this server: left alone")
            yield HeldProcess(name, pid, pidfd)
        finally:
            os.close(pidfd)

    def _descendants(self) -> list[psutil.Process]:
        """None if the supervisor has ended, even where its pid is another's now."""
        try:
            return self.supervisor.children(recursive=True) if self.supervisor.is_running() else []
        except psutil.NoSuchProcess:
            return []


def _resolve(host: str) -> set[str]:
    try:
        return {str(found[4][0]) for found in socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)}
    except OSError as bad:
        raise ConfigError(f"{host} is no address: {bad.strerror}") from bad


def _find_supervisor(addresses: set[str], port: int, url: str) -> psutil.Process:
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if _is_mine(process) and _runs(process, "serve") and _listens(process, addresses, port):
                return process
    raise ConfigError(f"no `ostraka serve` of this user listens on {url} on this machine")


def _born(process: psutil.Process) -> float:
    try:
        return float(process.create_time())
    except psutil.Error:
        return 0.0


def _gateway_place(process: psutil.Process) -> tuple[int, int] | None:
    """(generation, number); None for what is no gateway, or has ended. A forked one has the command line of what it was
    forked from, so what it is called says its number."""
    try:
        name = GATEWAY_NAME.fullmatch(process.name())
    except psutil.Error:
        return None
    return (int(_flags_of(process).get("--generation", 1)), int(name[1])) if name else None


def _flags_of(process: psutil.Process) -> dict[str, str]:
    """Of a gateway, or what it was forked from; none where it is neither, or has ended."""
    try:
        words = process.cmdline()
    except psutil.Error:
        return {}
    if GATEWAY_MODULES.isdisjoint(words):
        return {}
    return dict(word.split("=", 1) for word in words if word.startswith("--") and "=" in word)


def _figures_of(gateway: psutil.Process) -> list[dict[str, Any]] | None:
    """The workers that it has; None where it does not say so in time."""
    flags, place = _flags_of(gateway), _gateway_place(gateway)
    with socket.socket(socket.AF_UNIX) as asked, contextlib.suppress(OSError, LookupError, ValueError):
        asked.settimeout(FIGURES_TIMEOUT_S)
        asked.connect(flags["--figures-at"].split(",")[place[1] if place else 0])
        found: dict[str, Any] = json.loads(b"".join(iter(lambda: asked.recv(PIECE_BYTES), b"")))
        return list(found["workers"])
    return None


def _name_of(name: str, generation: int, *, is_plain: bool) -> str:
    return name if is_plain else f"{name}@{generation}"


def _is_mine(process: psutil.Process) -> bool:
    return bool(process.uids().real == os.getuid())


def _runs(process: psutil.Process, word: str) -> bool:
    """Of its command line: `ostraka serve`, `python -m ostraka serve`, `python -m ostraka_gateway`."""
    try:
        words = process.cmdline()
    except psutil.Error:
        return False
    return word in words and any(os.path.basename(each).startswith("ostraka") for each in words)  # noqa: PTH119


def _listens(process: psutil.Process, addresses: set[str], port: int) -> bool:
    return any(
        found.status == psutil.CONN_LISTEN
        and found.laddr.port == port
        and (found.laddr.ip in addresses or found.laddr.ip in ANY_ADDRESS)
        for found in process.net_connections("tcp")
    )
