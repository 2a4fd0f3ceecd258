"""One request a line in, one answer or error a line out, in order. What was written stays; a broken run can go on."""

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
        done = _count_whole_lines(sink) if output else 0
        total = None if source == "-" else sum(1 for _ in _bodies(lines))
        if total is not None:
            lines.seek(0)
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


def _count_whole_lines(sink: BinaryIO) -> int:
    """Cuts off a last line that was being written when the run broke, and stands at the end."""
    count = whole = 0
    for line in sink:
        if line.endswith(b"\n"):
            count += 1
            whole += len(line)
    sink.truncate(whole)
    sink.seek(0, os.SEEK_END)
    return count
