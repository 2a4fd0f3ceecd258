"""`ostraka decide`: answers a request file, or a file of one request a line, in the bytes the server would send."""

import argparse
import sys
from codecs import BOM_UTF8
from pathlib import Path

from ostraka.answerer_options import find_answerer, register_answerer
from ostraka.answerers import Answerer
from ostraka.decide_lines import decide_lines
from ostraka_shared.errors import ConfigError

LINES_SUFFIXES = (".jsonl", ".ndjson")


def register(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "request", metavar="REQUEST", help="the body of a POST /v1/systemone, or a .jsonl of them; - is stdin"
    )
    parser.add_argument("--lines", action="store_true", help="one request a line, whatever the file's name")
    parser.add_argument("--output", metavar="FILE", help="a new file for the answers (default: stdout)")
    parser.add_argument(
        "--resume",
        action="store_true",
        help="go on with --output: ask what it lacks, and again what had no answer; refused requests stay refused",
    )
    register_answerer(parser)


def run(values: argparse.Namespace) -> int:
    """Exit code 1 where a request was refused."""
    output = Path(values.output) if values.output else None
    is_lines = values.lines or Path(values.request).suffix in LINES_SUFFIXES
    if values.resume and not (output and is_lines):
        raise ConfigError("--resume goes on with a file of lines: give --output too")
    if output and output.exists() and not values.resume:
        raise ConfigError(f"{output} exists: answers are never written over a file")
    if is_lines:
        return decide_lines(values.request, output, lambda: find_answerer(values))
    return _decide_one(_read(values.request), output, find_answerer(values))


def _decide_one(body: bytes, output: Path | None, answerer: Answerer) -> int:
    """A refused request: the server's error body on stderr."""
    (outcome,) = answerer.answer([body])
    if not outcome.is_answer:
        sys.stderr.write(f"ostraka: {outcome.body.decode()}\n")
        return 1
    _write(outcome.body, output)
    return 0


def _read(source: str) -> bytes:
    try:
        read = sys.stdin.buffer.read() if source == "-" else Path(source).read_bytes()
    except OSError as bad:
        raise ConfigError(f"{source}: {bad.strerror}") from bad
    return read.removeprefix(BOM_UTF8)


def _write(answer: bytes, output: Path | None) -> None:
    if output is None:
        sys.stdout.buffer.write(answer + (b"\n" if sys.stdout.isatty() else b""))
        return
    try:
        output.parent.mkdir(parents=True, exist_ok=True)
        with output.open("xb") as file:
            file.write(answer)
    except OSError as bad:
        raise ConfigError(f"{output}: {bad.strerror}") from bad
