"""What a worker died of, as its supervisor tells the gateways of its machine: a file beside their socket, one a worker.

Who watches a process from outside sees that it has ended; how, its parent alone learns. It matters: a request is blamed
for a crash in the middle of it, and not for a kill -9 of somebody else's.
"""

import re
from pathlib import Path
from secrets import token_hex

CRASHED = "exit"
KILLED = "killed"
"""By a SIGKILL that was not for want of memory: no code of a worker's own ends so."""
CAUSES = frozenset({CRASHED, KILLED})
NOTE_PATTERN = r"[A-Za-z0-9_-]{1,64}\.(died|[0-9a-f]{8})"
"""Of the names of notes, and of those that are just being left."""
_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")


def leave_note(folder: Path, worker_id: str, incarnation: int, cause: str) -> None:
    """Over that of the worker before it. Who is first knows best: a gateway that kills one for hanging leaves a note
    before it does. Nothing is noted of a name that no worker of ours has. Raises OSError."""
    if not _NAME.fullmatch(worker_id) or find_note(folder, worker_id, incarnation):
        return
    path = _path(folder, worker_id)
    unfinished = path.with_suffix(f".{token_hex(4)}")  # several gateways may note the same end
    try:
        unfinished.write_text(f"{incarnation} {cause}", encoding="ascii")
        unfinished.replace(path)
    except OSError:  # a full disk, of which each death would take another name
        unfinished.unlink(missing_ok=True)
        raise


def find_note(folder: Path, worker_id: str, incarnation: int) -> str | None:
    """Its cause, once it is known. `worker_id` may be any word of a peer's."""
    if not _NAME.fullmatch(worker_id):
        return None
    try:
        of, _, cause = _path(folder, worker_id).read_text(encoding="ascii").partition(" ")
    except (OSError, ValueError):
        return None
    return cause if of == str(incarnation) and cause in CAUSES else None


def clear_notes(folder: Path) -> None:
    """Of a server that was here before."""
    for path in folder.glob("*.died"):
        path.unlink(missing_ok=True)


def _path(folder: Path, worker_id: str) -> Path:
    return folder / f"{worker_id}.died"
