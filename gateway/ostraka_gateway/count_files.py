"""Where a gateway counts so that its counts outlive it: a file a kind in a folder that all gateways have in common."""

import os
from collections.abc import Callable
from pathlib import Path

from prometheus_client import values

from ostraka_shared.addresses import count_paths

FILE_BYTES = 1 << 20
"""Of one gateway's counts of a kind, as prometheus_client begins it; a series takes about 100."""
DELETED = " (deleted)"


class CountFiles:
    """From now on this process counts in files of its name: who succeeds it counts on, so that no sum over the gateways
    ever falls. prometheus_client reads the folder from the environment, and takes the files as it finds them. Raises
    OSError where there is no room for them."""

    def __init__(self, folder: Path, name: str) -> None:
        self.folder = folder
        self._name = name
        for path in count_paths(folder, name):
            _allot(path)
        os.environ["PROMETHEUS_MULTIPROC_DIR"] = str(folder)
        values.ValueClass = values.MultiProcessValue(lambda: self._name)  # type: ignore[no-untyped-call]

    def restore(self, count: Callable[[], None]) -> None:
        """Where the files were deleted under it, there are new ones with the same counts. `count` counts anything:
        prometheus_client opens files when it is about to count under another name than before. Raises OSError."""
        self.folder.mkdir(mode=0o700, exist_ok=True)
        lost = _deleted_files(self.folder.resolve())  # the system knows no links to it, as /var/run is one
        name, passing = self._name, f"{self._name}.lost"
        try:
            for path in (*count_paths(self.folder, passing), *count_paths(self.folder, name)):
                _allot(path)
            self._name = passing
            count()
            for path in count_paths(self.folder, name):
                if path.name in lost:
                    with path.open("r+b") as file:  # what it was allotted stays its own
                        file.write(lost[path.name])
            self._name = name
            count()
        finally:
            self._name = name
            for path in count_paths(self.folder, passing):
                path.unlink(missing_ok=True)


def _deleted_files(folder: Path) -> dict[str, bytes]:
    """By name, what this process still has open of it, and nobody else can open any more."""
    found = {}
    for entry in Path("/proc/self/fd").iterdir():
        try:
            target = os.readlink(entry)  # noqa: PTH115  no path any more
            if target.endswith(DELETED) and (path := Path(target.removesuffix(DELETED))).parent == folder:
                found[path.name] = entry.read_bytes()
        except OSError:  # closed just now
            continue
    return found


def _allot(file: Path) -> None:
    """Its blocks are had from now on: a sparse one's are taken when a count is written to its mapping, and where the
    disk has none left then, the process is ended by SIGBUS."""
    with file.open("ab") as made:
        if file.stat().st_size < FILE_BYTES:
            try:
                os.posix_fallocate(made.fileno(), 0, FILE_BYTES)
            except OSError as bad:  # which does not say of what
                if not file.stat().st_size:  # else it would be taken for one that has all its counts
                    file.unlink()
                raise OSError(bad.errno, bad.strerror, str(file)) from None
