"""One request a line in, one answer or error a line out, in order. What was written stays; a broken run can go on."""

import json
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from itertools import islice
from pathlib import Path
from typing import BinaryIO

from tqdm import tqdm

from ostraka.answerers import Answerer
from ostraka_shared.errors import ConfigError


def decide_lines(source: str, output: Path | None, find_answerer: Callable[[], Answerer]) -> int:
    """`output` may have the first lines' outcomes already. Exit code 1 if any line of this run was refused."""
    with ExitStack() as files:
        lines = files.enter_context(_open(source)) if source != "-" else sys.stdin.buffer
        sink = files.enter_context(_append(output)) if output else sys.stdout.buffer
        total = _count_bodies(lines) if source != "-" and lines.seekable() else None
        done = _go_on_after(sink, output, total) if output else 0
        bodies = islice(_bodies(lines), done, None)
        # Before the bar, whose thread a build's fork should not meet.
        outcomes = find_answerer().answer(bodies)
        bar = files.enter_context(
            # Only a person at a terminal wants it.
            tqdm(total=total, initial=done, unit="request", disable=None, file=sys.stderr, smoothing=0.05)
        )
        answered = refused = 0
        for outcome in outcomes:
            sink.write(outcome.body + b"\n")
            sink.flush()
            answered += 1
            refused += not outcome.is_answer
            bar.update()
    if refused:
        sys.stderr.write(f"ostraka: {refused} of {answered} requests were refused: their lines say why\n")
    return 1 if refused else 0


def _bodies(lines: BinaryIO) -> Iterator[bytes]:
    """Blank lines ask nothing and get no answer."""
    return (line for line in (line.strip() for line in lines) if line)


def _open(source: str) -> BinaryIO:
    try:
        return Path(source).open("rb")
    except OSError as bad:
        raise ConfigError(f"{source}: {bad.strerror}") from bad


def _append(output: Path) -> BinaryIO:
    try:
        output.parent.mkdir(parents=True, exist_ok=True)
        return output.open("r+b" if output.exists() else "x+b")
    except OSError as bad:
        raise ConfigError(f"{output}: {bad.strerror}") from bad


def _count_bodies(lines: BinaryIO) -> int:
    count = sum(1 for _ in _bodies(lines))
    lines.seek(0)
    return count


def _go_on_after(sink: BinaryIO, output: Path, total: int | None) -> int:
    """How many outcomes the file has. Cuts off a last one that was being written when the run broke, and stands at the
    end. Raises ConfigError, and changes nothing, where the file is not what such a run wrote."""
    count = whole = 0
    for number, line in enumerate(sink, 1):
        is_whole = line.endswith(b"\n")
        if not (_is_outcome(line) if is_whole else line.startswith(b"{")):
            raise ConfigError(f"{output}: line {number} is no answer of an earlier run: resume with its own file")
        count += is_whole
        whole += len(line) * is_whole
    if total is not None and count > total:
        raise ConfigError(f"{output} has {count} answers, and there are {total} requests: resume with its own file")
    sink.truncate(whole)
    sink.seek(0, os.SEEK_END)
    return count


def _is_outcome(line: bytes) -> bool:
    try:
        value = json.loads(line)
    except ValueError:
        return False
    return isinstance(value, dict) and ("answers" in value or "detail" in value)
