"""One request a line in, one answer or error a line out, in order. What was written stays; a broken run can go on."""

import sys
from codecs import BOM_UTF8
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import BinaryIO

from tqdm import tqdm

from ostraka.answerers import Answerer, Outcome
from ostraka.decide_fates import Fate, read_fate
from ostraka.decide_output import Kept, Output
from ostraka_shared.errors import ConfigError
from ostraka_worker.build.workspace import full_disk_named

NOTHING = Kept(0, (), Counter())


def decide_lines(source: str, output: Path | None, find_answerer: Callable[[], Answerer]) -> int:
    """`output` may have the first lines' outcomes already. Exit code 1 if any line, old or new, is an error."""
    with ExitStack() as files:
        if output:
            files.enter_context(full_disk_named(output.parent))
        lines = files.enter_context(_open(source)) if source != "-" else sys.stdin.buffer
        total = _count_bodies(lines) if source != "-" and lines.seekable() else None
        sink = files.enter_context(closing(Output(output, total))) if output else None
        kept = sink.kept if sink else NOTHING
        # Before the bar, whose thread a build's fork should not meet.
        outcomes = find_answerer().answer(_to_ask(_bodies(lines), kept))
        bar = files.enter_context(
            # Only a person at a terminal wants it.
            tqdm(
                total=total,
                initial=kept.count - len(kept.unanswered),
                unit="request",
                disable=None,
                file=sys.stderr,
                smoothing=0.05,
            )
        )
        fates = kept.fates.copy()
        fates[Fate.UNANSWERED] = 0
        for outcome in outcomes:
            sink.write(outcome.body) if sink else _print(outcome.body)
            fates[_fate(outcome)] += 1
            bar.update()
    return _summarize(fates)


def _summarize(fates: Counter[Fate]) -> int:
    for fate, hint in (
        (Fate.REFUSED, "their lines say why"),
        (Fate.UNANSWERED, "with --output, --resume asks them again"),
    ):
        if fates[fate]:
            sys.stderr.write(f"ostraka: {fates[fate]} of {fates.total()} requests were {fate}: {hint}\n")
    return 1 if fates[Fate.REFUSED] or fates[Fate.UNANSWERED] else 0


def _fate(outcome: Outcome) -> Fate:
    return Fate.ANSWERED if outcome.is_answer else read_fate(outcome.body) or Fate.UNANSWERED


def _print(outcome: bytes) -> None:
    sys.stdout.buffer.write(outcome + b"\n")
    sys.stdout.buffer.flush()


def _to_ask(bodies: Iterator[bytes], kept: Kept) -> Iterator[bytes]:
    """Those that had no answer, and those that were never asked."""
    again = frozenset(kept.unanswered)
    return (body for place, body in enumerate(bodies) if place >= kept.count or place in again)


def _bodies(lines: BinaryIO) -> Iterator[bytes]:
    """Blank lines ask nothing and get no answer."""
    return (line for line in (line.removeprefix(BOM_UTF8).strip() for line in lines) if line)


def _open(source: str) -> BinaryIO:
    try:
        return Path(source).open("rb")
    except OSError as bad:
        raise ConfigError(f"{source}: {bad.strerror}") from bad


def _count_bodies(lines: BinaryIO) -> int:
    count = sum(1 for _ in _bodies(lines))
    lines.seek(0)
    return count
