"""Rows as text for a terminal and for Markdown, and as JSON. Pure."""

import json
import math
from collections.abc import Sequence
from dataclasses import asdict, fields, is_dataclass
from typing import Any

from benchmarks.faults.outcomes import Row

HEADINGS = (
    "fault",
    "requests",
    "retried",
    "sent again",
    "lost",
    "errors",
    "wrong",
    "twice",
    "p99 before",
    "during",
    "after",
    "full again",
)


def cells(row: Row) -> list[str]:
    counts = (row.requests, row.retried, row.redispatched, row.lost, row.failed, row.wrong, row.duplicates)
    times = (row.p99_before_s, row.p99_during_s, row.p99_after_s)
    return [row.fault, *map(str, counts), *map(as_ms, times), as_s(row.full_after_s)]


def as_ms(seconds: float) -> str:
    return "-" if math.isnan(seconds) else f"{seconds * 1000:,.0f} ms"


def as_s(seconds: float | None) -> str:
    if seconds is None:
        return "never"
    if math.isnan(seconds):
        return "-"
    return f"{seconds:.2f} s" if seconds else "at once"


def as_markdown(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Its columns are aligned, so that it reads well in a terminal too."""
    widths = [max(len(line[place]) for line in (headings, *rows)) for place in range(len(headings))]
    lines = [headings, ["-" * width for width in widths], *rows]
    return "\n".join("| " + " | ".join(map(str.ljust, line, widths)) + " |" for line in lines)


def as_json(rows: Sequence[Any], **about: Any) -> str:
    """`rows` are dataclasses; what is not a number there is null."""
    return json.dumps({**about, "rows": [_plain(row) for row in rows]}, indent=2)


def _plain(row: Any) -> dict[str, Any]:
    assert is_dataclass(row), "a row is a dataclass"
    values = asdict(row)  # type: ignore[arg-type]
    return {f.name: _number(values[f.name]) for f in fields(row)}


def _number(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value
