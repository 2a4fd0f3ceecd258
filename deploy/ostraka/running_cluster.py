"""Finds a server of this machine by the address it answers on, and proves which processes are its own.

    address ── its listening socket ──► supervisor ── descendants ──► gateway, workers ◄── named by /health

A pid is the word of whoever answers, and may have been given to another process since. So each process is held by a
pidfd first, and then it must descend from the `ostraka serve` that listens there. Nothing else is ever touched.
"""

import contextlib
import http.client
import json
import os
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

HEALTH_TIMEOUT_S = 10.0
GATEWAY_MODULE = "ostraka_gateway"
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
        self._host, self._port = parts.hostname or "", parts.port or 80
        self.supervisor = _find_supervisor(_resolve(self._host), self._port, url)

    def workers(self) -> dict[str, int]:
        """The pid of each worker by its name, as the server says."""
        connection = http.client.HTTPConnection(self._host, self._port, timeout=HEALTH_TIMEOUT_S)
        try:
            connection.request("GET", "/health")
            health: dict[str, Any] = json.loads(connection.getresponse().read())
        except (OSError, http.client.HTTPException, ValueError) as bad:
            raise ConfigError(f"the server does not answer /health: {bad}") from bad
        finally:
            connection.close()
        if "workers" not in health:
            raise ConfigError(
                "its /health names no workers: it was started with --compat jevos, which has no such field"
            )
        return {worker["worker"]: worker["pid"] for worker in health["workers"]}

    def gateways(self) -> dict[str, int]:
        """As `workers`, from what the supervisor runs, by the names that its log has; while a rollout has two
        generations of them running, each name says which it means: gateway@1, gateway@2. A spare is younger than the
        gateway that it waits for, and not meant."""
        youngest_first = sorted(self._descendants(), key=_born, reverse=True)
        found = {place: child.pid for child in youngest_first if (place := _gateway_place(child))}
        is_plain = len({generation for generation, _ in found}) == 1
        names = {place: gateway_name(place[1]) + ("" if is_plain else f"@{place[0]}") for place in sorted(found)}
        return {name: found[place] for place, name in names.items()}

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
    """(generation, number), as its command line says; None for what is no gateway."""
    try:
        words = process.cmdline()
    except psutil.Error:
        return None
    flags = dict(word.split("=", 1) for word in words if word.startswith(("--number=", "--generation=")))
    is_gateway = GATEWAY_MODULE in words and "--number" in flags
    return (int(flags.get("--generation", 1)), int(flags["--number"])) if is_gateway else None


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
