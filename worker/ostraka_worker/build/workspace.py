"""Places to build in: one builder at a time, half-made things only in scratch folders, and a full disk named as one."""

import errno
import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ostraka_shared.errors import OutOfSpace
from ostraka_worker.build.progress import Progress

FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


@contextmanager
def exclusive(parent: Path, progress: Progress) -> Iterator[None]:
    """Waits until no other builder works in `parent`. The lock dies with its process, however that dies."""
    parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        _lock(descriptor, parent, progress)
        yield
    finally:
        os.close(descriptor)


@contextmanager
def scratch(parent: Path, name: str) -> Iterator[Path]:
    """A folder in `parent`, gone afterwards; one that a killed builder left is removed first. Needs `exclusive`."""
    prefix = f".{name}.building-"
    for stale in parent.glob(f"{prefix}*"):
        shutil.rmtree(stale, ignore_errors=True)
    folder = Path(tempfile.mkdtemp(prefix=prefix, dir=parent))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def full_disk_named(place: Path) -> Iterator[None]:
    """Raises OutOfSpace for an OSError that says so; other errors pass."""
    try:
        yield
    except OSError as bad:
        if bad.errno not in FULL:
            raise
        raise OutOfSpace(f"the disk of {place} is full: free some space and try again") from bad


def publish(made: Path, target: Path, replaced: Path) -> None:
    """Moves a finished folder to its place, what lay there to `replaced`; all on one disk, so each move is atomic."""
    for path in (*made.iterdir(), made):
        _sync(path)
    if target.exists():
        target.rename(replaced)
    made.rename(target)
    _sync(target.parent)


def _lock(descriptor: int, parent: Path, progress: Progress) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        progress.begin(f"waiting for another build in {parent}")
        fcntl.flock(descriptor, fcntl.LOCK_EX)
    except OSError as bad:
        # Some network file systems cannot lock a folder. Two builds would then waste work, but publish whole folders.
        if bad.errno not in (errno.EBADF, errno.ENOLCK, errno.EOPNOTSUPP):
            raise


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
