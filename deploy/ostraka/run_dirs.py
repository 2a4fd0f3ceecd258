"""The server's run directory: made, locked, removed; and those that killed servers have left are swept away.

swept ◄── a folder of this user's, named and filled as ours, whose lock nobody holds any more
"""

import contextlib
import fcntl
import os
import re
import shutil
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

import structlog

from ostraka.front_desk import SOCKET_NAME
from ostraka.ground import lock_folder
from ostraka_shared.addresses import (
    FIGURES_STEM,
    FRONT_FOLDER,
    METRICS_FOLDER,
    SOCKET_STEM,
    check_endpoint,
    ipc_endpoint,
)
from ostraka_shared.death_notes import NOTE_PATTERN
from ostraka_shared.errors import ConfigError
from ostraka_shared.options import expand_user
from ostraka_shared.setting_sources import flag_named

log = structlog.get_logger()

PREFIX = "ostraka-"
MADE = re.compile(rf"{PREFIX}[a-z0-9_]{{8}}")
"""As `tempfile` names it. One that was asked for is not swept: its server may be starting again just now."""
OURS = re.compile(
    rf"{SOCKET_NAME}|({SOCKET_STEM}|{FIGURES_STEM})[0-9]*\.sock|{METRICS_FOLDER}|{FRONT_FOLDER}|[0-9]+|{NOTE_PATTERN}"
)
"""What lies in a run directory, the numbers of generations too. Where there is anything else, it is somebody's own."""


@contextlib.contextmanager
def private_run_dir(asked: str | None) -> Iterator[Path]:
    """A fresh folder is ours to remove; one that was asked for stays. Raises ConfigError."""
    if asked is not None:
        with flag_named("--run-dir"):
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
        with _locked(fresh):
            sweep(fresh.parent)
            yield fresh
    finally:
        shutil.rmtree(fresh, ignore_errors=True)


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Raises ConfigError."""
    descriptor = lock_folder(folder)
    try:
        yield
    finally:
        os.close(descriptor)


def _make_run_dir() -> Path:
    try:
        return Path(tempfile.mkdtemp(prefix=PREFIX, dir=os.environ.get("XDG_RUNTIME_DIR") or None))
    except OSError:  # the variable survives its session, and sudo
        return Path(tempfile.mkdtemp(prefix=PREFIX))


def sweep(place: Path) -> None:
    """What servers of this user that were killed have left in `place`. A server has the lock before it has the socket,
    and the system takes back the lock alone."""
    for folder in filter(lambda each: MADE.fullmatch(each.name), place.glob(f"{PREFIX}*")):
        with contextlib.suppress(OSError):  # a link, no folder, gone meanwhile, or a server lives in it
            descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            try:
                if not _is_left(descriptor):  # one that is just being made would find its lock taken, by us
                    continue
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if _is_left(descriptor):
                    shutil.rmtree(folder)
                    log.info("run_dir_swept", run_dir=str(folder))
            finally:
                os.close(descriptor)


def _is_left(folder: int) -> bool:
    """Whether the open folder is a run directory of this user's. Raises OSError."""
    found, names = os.fstat(folder), os.listdir(folder)
    is_private = stat.S_IMODE(found.st_mode) == 0o700 and found.st_uid == os.geteuid()
    is_filled = SOCKET_NAME in names and stat.S_ISSOCK(os.lstat(SOCKET_NAME, dir_fd=folder).st_mode)
    return is_private and is_filled and all(OURS.fullmatch(name) for name in names)
