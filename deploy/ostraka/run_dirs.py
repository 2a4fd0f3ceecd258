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
from typing import NamedTuple

import structlog

from ostraka.front_desk import SOCKET_NAME
from ostraka.ground import lock_folder
from ostraka_gateway.handover import SUFFIX
from ostraka_shared.addresses import (
    FIGURES_STEM,
    FRONT_FOLDER,
    METRICS_FOLDER,
    SOCKET_STEM,
    check_endpoint,
    gateway_name,
    ipc_endpoint,
)
from ostraka_shared.death_notes import NOTE_PATTERN
from ostraka_shared.errors import ConfigError
from ostraka_shared.front_files import NAMES
from ostraka_shared.options import expand_user
from ostraka_shared.setting_sources import flag_named

log = structlog.get_logger()

PREFIX = "ostraka-"
MADE = re.compile(rf"{PREFIX}[a-z0-9_]{{8}}")
"""As `tempfile` names it. One that was asked for is not swept: its server may be starting again just now."""


class Content(NamedTuple):
    """What may lie in a folder of ours: files and sockets, and folders by their names. Where there is anything else, it
    is somebody's own."""

    files: re.Pattern[str]
    folders: tuple[tuple[re.Pattern[str], "Content"], ...] = ()


SOCKETS = rf"({SOCKET_STEM}|{FIGURES_STEM}|{gateway_name(0)})[0-9]*\.sock({re.escape(SUFFIX)})?"
COUNTS = Content(re.compile(rf"[a-z]+_{gateway_name(0)}[0-9]*(\.lost)?\.db"))
FRONT = Content(re.compile("|".join(map(re.escape, NAMES))))
GENERATION = Content(
    re.compile(f"{SOCKETS}|{NOTE_PATTERN}"), ((re.compile(METRICS_FOLDER), COUNTS), (re.compile(FRONT_FOLDER), FRONT))
)
SERVER = Content(
    re.compile(f"{SOCKET_NAME}|{GENERATION.files.pattern}"), (*GENERATION.folders, (re.compile("[0-9]+"), GENERATION))
)


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
        with flag_named("--run-dir"):
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
    return is_private and is_filled and _is_only(folder, SERVER)


def _is_only(folder: int, content: Content) -> bool:
    """Raises OSError, also where what is named as a folder is none."""
    for name in os.listdir(folder):
        inner = next((inner for pattern, inner in content.folders if pattern.fullmatch(name)), None)
        if inner is None:
            if not content.files.fullmatch(name):
                return False
            continue
        within = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=folder)
        try:
            if not _is_only(within, inner):
                return False
        finally:
            os.close(within)
    return True
