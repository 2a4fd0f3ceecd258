"""A file of outcomes, one a line, that another run may go on with. It is never half-written, whenever a run is killed:

answers.jsonl          whole lines, in the order of the requests ──► appended to
answers.jsonl.again    `NUMBER<tab>OUTCOME` of lines that had no answer and were asked again, one by one
         │
         └── all asked, or the next --resume: put in their places in a copy, which then replaces answers.jsonl

One run at a time: answers.jsonl is locked, by the system, for as long as its run lives.
"""

import contextlib
import fcntl
import os
import shutil
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from ostraka.decide_fates import Fate, read_fate
from ostraka_shared.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Kept:
    """What an earlier run left: `unanswered` are the places, from 0, of lines to be asked again."""

    count: int
    unanswered: tuple[int, ...]
    fates: Counter[Fate]


class Output:
    """To be given the outcomes of `kept.unanswered`, in that order, then those of the requests after `kept.count`."""

    def __init__(self, path: Path, most: int | None) -> None:
        """`most`: how many requests there are, where that is known. Raises ConfigError, and changes nothing, where the
        file is not what such a run wrote."""
        self._path = Path(os.path.realpath(path))
        self._journal = self._path.with_name(f"{self._path.name}.again")
        self._sink = _open(self._path)
        try:
            self.kept = _read(self._sink, path, most)
            if self.kept.unanswered and self._journal.exists():
                self._mend()
                self.kept = _read(self._sink, path, most)
            self._journal.unlink(missing_ok=True)
        except BaseException:
            self._sink.close()
            raise
        self._left = iter(self.kept.unanswered)
        self._again: BinaryIO | None = None

    def close(self) -> None:
        self._sink.close()
        if self._again:
            self._again.close()

    def write(self, outcome: bytes) -> None:
        place = next(self._left, None)
        if place is None:
            self._sink.write(outcome + b"\n")
            self._sink.flush()
            return
        self._again = self._again or self._journal.open("xb")
        self._again.write(b"%d\t%s\n" % (place, outcome))
        self._again.flush()
        if place == self.kept.unanswered[-1]:
            self._again.close()
            self._mend()

    def _mend(self) -> None:
        """Puts what was asked again in its places. Done twice, as after a kill in between, it changes nothing more."""
        found = _read_journal(self._journal)
        mended = self._path.with_name(f"{self._path.name}.mended")
        self._sink.seek(0)
        with contextlib.ExitStack() as unfinished:
            copy = unfinished.enter_context(mended.open("w+b"))
            _lock(copy, mended)  # before it is what others find
            for place, line in enumerate(self._sink):
                copy.write(found[place] if place in found and read_fate(line) is Fate.UNANSWERED else line)
            copy.flush()
            os.fsync(copy.fileno())
            shutil.copymode(self._path, mended)
            mended.replace(self._path)
            unfinished.pop_all()
        self._sink.close()
        self._sink = copy
        self._journal.unlink()


def _open(output: Path) -> BinaryIO:
    try:
        output.parent.mkdir(parents=True, exist_ok=True)
        sink = output.open("r+b" if output.exists() else "x+b")
    except OSError as bad:
        raise ConfigError(f"{output}: {bad.strerror}") from bad
    try:
        _lock(sink, output)
    except ConfigError:
        sink.close()
        raise
    return sink


def _lock(file: BinaryIO, output: Path) -> None:
    """Until it is closed. Raises ConfigError where another run has it, or has just put its own in its place."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError):  # the latter on some network file systems
        is_ours = False
    except OSError:  # others lock nothing
        is_ours = True
    else:
        is_ours = output.exists() and os.path.samestat(os.fstat(file.fileno()), output.stat())
    if not is_ours:
        raise ConfigError(f"{output} is being written by another run: wait for its end")


def _read(sink: BinaryIO, output: Path, most: int | None) -> Kept:
    """Cuts off a last line that was being written when the run broke, and stands at the end."""
    fates: list[Fate] = []
    whole = 0
    sink.seek(0)
    for number, line in enumerate(sink, 1):
        is_whole = line.endswith(b"\n")
        fate = read_fate(line) if is_whole else None
        if fate:
            fates.append(fate)
            whole += len(line)
        elif is_whole or not line.startswith(b"{"):
            raise ConfigError(f"{output}: line {number} is no answer of an earlier run: resume with its own file")
    if most is not None and len(fates) > most:
        raise ConfigError(f"{output} has {len(fates)} answers, and there are {most} requests: resume with its own file")
    sink.truncate(whole)
    sink.seek(0, os.SEEK_END)
    unanswered = tuple(place for place, fate in enumerate(fates) if fate is Fate.UNANSWERED)
    return Kept(len(fates), unanswered, Counter(fates))


def _read_journal(journal: Path) -> dict[int, bytes]:
    """Of each place its outcome, with the line's end. A last one that was being written is not taken."""
    found = {}
    with journal.open("rb") as lines:
        for line in lines:
            place, _, outcome = line.partition(b"\t")
            if line.endswith(b"\n") and place.isdigit() and read_fate(outcome):
                found[int(place)] = outcome
    return found
