"""Of what a worker died, is worth a moment: of its requests, one may be at fault. Only its supervisor knows."""

import asyncio
import contextlib
from collections.abc import Callable
from pathlib import Path

from ostraka_shared.death_notes import CRASHED, find_note, leave_note
from ostraka_shared.messages import Hello

NOTE_S = 0.1
NOTE_POLL_S = 0.002
"""A supervisor is woken by a worker's end when we are, and leaves its note in far less than a millisecond of work."""


def inquire(notes: Path, hello: Hello, on_cause: Callable[[str], None]) -> None:
    """`on_cause` is called on the event loop, now or soon; without a note it is told of a crash."""
    _look(notes, hello, on_cause, asyncio.get_running_loop().time() + NOTE_S)


def _look(notes: Path, hello: Hello, on_cause: Callable[[str], None], ends: float) -> None:
    loop = asyncio.get_running_loop()
    cause = find_note(notes, hello.worker_id, hello.incarnation)
    if cause is None and loop.time() < ends:
        loop.call_later(NOTE_POLL_S, _look, notes, hello, on_cause, ends)
    else:
        on_cause(cause or CRASHED)


def certify_crash(notes: Path, hello: Hello) -> None:
    """Before it is killed for hanging, which other gateways are to take for the crash that it is."""
    with contextlib.suppress(OSError):
        leave_note(notes, hello.worker_id, hello.incarnation, CRASHED)
