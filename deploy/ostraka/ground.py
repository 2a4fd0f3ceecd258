"""What a running server stands on and may lose while it runs: its run directory, and its model's files.

    looked at each second ──► sockets, counts, or the copy of the model's small files that gateways read, are gone: the
                          │   directory is made again, and all bind and count anew in it
                          └─► the model's files are others (`model_watch.py`)

Both are said in the log, and by /health as long as they last.
"""

import fcntl
import os
from collections.abc import Iterable
from pathlib import Path

import structlog

from ostraka.children import Child
from ostraka.front_desk import FrontDesk
from ostraka.gateway_child import GatewayChild
from ostraka.generation import Generation
from ostraka.model_watch import ModelWatch
from ostraka.succession import Succession
from ostraka_gateway.orders import Degraded, Rebind
from ostraka_shared.addresses import FRONT_FOLDER, METRICS_FOLDER, check_endpoint, count_paths, ipc_endpoint
from ostraka_shared.errors import ConfigError
from ostraka_shared.front_files import write_front

log = structlog.get_logger()

LOOK_S = 1.0
RUN_DIR_LOST = "run_dir_lost"


class Ground:
    """Of a server that is up: `turn`, as often as anything happens."""

    def __init__(self, run_dir: Path, desk: FrontDesk, succession: Succession) -> None:
        self._run_dir = run_dir
        self._desk = desk
        self._succession = succession
        self._due = 0.0
        self._locked = _inode(run_dir)
        self._lock: int | None = None
        self._is_lost = False
        self._said = ""
        self._watches: dict[int, ModelWatch] = {}
        self._told: dict[int, tuple[str, ...]] = {}

    def turn(self, now: float) -> None:
        """`now`: any monotonic clock's, in seconds."""
        if now < self._due:
            return
        self._due = now + LOOK_S
        running = [each for each in (self._succession.serving, self._succession.successor) if each]
        is_lost = self._look_at_run_dir(running)
        for generation in running:
            watch = self._watch_of(generation)
            reasons = ((RUN_DIR_LOST,) if is_lost else ()) + (watch.look() if watch else ())
            if reasons or self._told.get(generation.number):  # over and over: a gateway may just have come
                for door in generation.doors:
                    door.order(Degraded(reasons))
            self._told[generation.number] = reasons

    def hold_back(self, child: Child, code: str) -> None:
        """Of the serving generation: one that has ended, and cannot load the model again now, is to wait."""
        if watch := self._watch_of(self._succession.serving):
            watch.hold_back(child, code)

    def close(self) -> None:
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def _look_at_run_dir(self, running: Iterable[Generation]) -> bool:
        """Whether something of it is missing, which is then made good, if it can be."""
        lost = [path for path in (self._desk.path, *self._paths_of(running)) if not _is_there(path)]
        if lost and not self._is_lost:
            names = [str(path.relative_to(self._run_dir)) for path in lost]
            log.error("run_dir_lost", run_dir=str(self._run_dir), missing=names, hint="somebody deletes it: see who")
        elif self._is_lost and not lost:
            log.warning("run_dir_restored", run_dir=str(self._run_dir))
            self._said = ""
        self._is_lost = bool(lost)
        if lost:
            try:
                self._restore(running)
            except (OSError, ConfigError) as bad:
                if str(bad) != self._said:
                    self._said = str(bad)
                    log.error("run_dir_not_restored", detail=str(bad), hint="no worker can join: restart the server")
        return self._is_lost

    def _restore(self, running: Iterable[Generation]) -> None:
        """Raises OSError or ConfigError."""
        self._run_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        check_endpoint(ipc_endpoint(self._run_dir))
        if (inode := _inode(self._run_dir)) != self._locked:  # another folder than the one that was locked at the start
            self.close()
            self._lock, self._locked = lock_folder(self._run_dir), inode
        if not _is_there(self._desk.path):
            self._desk.rebind()
        for generation in running:
            folder = self._folder_of(generation)
            for each in (folder, folder / METRICS_FOLDER):
                each.mkdir(mode=0o700, exist_ok=True)
            write_front(generation.front, folder / FRONT_FOLDER)
            for door in generation.doors:
                door.order(Rebind())

    def _paths_of(self, running: Iterable[Generation]) -> list[Path]:
        """What each gateway that is up has bound and counts in, and what one that comes needs. One that is starting or
        leaving has nothing there."""
        found = []
        for generation in running:
            folder = self._folder_of(generation)
            found += [folder / METRICS_FOLDER, *(folder / FRONT_FOLDER / name for name in generation.front)]
            for door, *sockets in zip(generation.gateways, generation.workers_at, generation.figures_at, strict=True):
                if isinstance(door, GatewayChild) and door.is_running and door.has_reported and door.control:
                    found += map(Path, sockets)
                    if len(generation.gateways) > 1:
                        found += count_paths(folder / METRICS_FOLDER, door.name)
        return found

    def _folder_of(self, generation: Generation) -> Path:
        return generation.run_dir or self._run_dir

    def _watch_of(self, generation: Generation) -> ModelWatch | None:
        if generation.model and generation.number not in self._watches:
            self._watches[generation.number] = ModelWatch(generation, generation.model)
        return self._watches.get(generation.number)


def _is_there(path: Path) -> bool:
    """False too where it cannot be reached: `Path.exists` would raise."""
    return os.access(path, os.F_OK)


def _inode(folder: Path) -> tuple[int, int]:
    found = folder.stat()
    return found.st_dev, found.st_ino


def lock_folder(folder: Path) -> int:
    """A descriptor that holds it until it is closed: a second server would bind over the first one's sockets. Programs
    that tidy up leave locked folders alone, systemd's among them. Raises ConfigError."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        raise ConfigError(f"--run-dir {folder} is in use by another server: give each its own") from None
    return descriptor
