"""`ostraka eval`: how right a model is on labelled examples, how honest its probabilities, and against another."""

import argparse
import contextlib
import json
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from tqdm import tqdm

from ostraka.answerer_options import find_answerer, find_other_answerer, register_answerer
from ostraka.answerers import Answerer
from ostraka.bad_lines import BadLines
from ostraka.evaluation.asking import Refusal, ask
from ostraka.evaluation.examples import Example, Prediction, read_examples
from ostraka.evaluation.plot import draw_reliability, require_plotting
from ostraka.evaluation.report import Report, build_comparison, build_report
from ostraka.evaluation.tables import describe_comparison, describe_report
from ostraka_shared.errors import ConfigError
from ostraka_worker.build.catalog import DEFAULT_PRECISION
from ostraka_worker.build.workspace import full_disk_named


def register(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "data", nargs="+", metavar="DATA", help="labelled examples, one JSON object a line, plain or gzip"
    )
    parser.add_argument(
        "--compare", metavar="OTHER", help="ask this model folder or server URL too: paired differences"
    )
    parser.add_argument(
        "--by", default="source", metavar="FIELD", help="results for each value of this field of a line"
    )
    parser.add_argument(
        "--json", metavar="FILE", help="the whole report as JSON, to a new file; - is stdout, without the tables"
    )
    parser.add_argument(
        "--plot",
        metavar="FILE",
        help="the reliability plot as PNG, to a new file; needs the extra `eval` (docs/eval.md)",
    )
    register_answerer(parser)


def run(values: argparse.Namespace) -> int:
    """Exit code 1 where a line could not be used or asked."""
    if values.plot:
        require_plotting()
    _check_targets([Path(each) for each in (values.plot, values.json if values.json != "-" else None) if each])
    bad = BadLines()
    examples = list(read_examples(values.data, values.by, bad.add))
    if not examples:
        raise ConfigError("no labelled example to ask: docs/eval.md has their form")
    answerers = {_name(values): find_answerer(values, values.compare)}
    if values.compare:
        answerers[_distinct(values.compare, answerers)] = find_other_answerer(values.compare, values)
    told = {name: _ask(name, answerer, examples, bad) for name, answerer in answerers.items()}
    reports = {name: build_report(list(_answered(own).values())) for name, own in told.items()}
    comparison = build_comparison(_pairs(*told.values())) if len(told) == 2 else None
    if values.json != "-":
        _print_tables(reports, comparison)
    _write_files(values, reports, comparison, bad)
    if bad.all:
        print(f"ostraka: {len(bad.all)} lines could not be used or were refused", file=sys.stderr)
    return 1 if bad.all else 0


def _ask(name: str, answerer: Answerer, examples: Sequence[Example], bad: BadLines) -> list[Prediction | Refusal]:
    """Raises ConfigError where every example was refused: there is nothing to measure."""
    # Only a person at a terminal wants the bar.
    with tqdm(total=len(examples), desc=name, unit="question", disable=None, file=sys.stderr) as bar:
        told = ask(answerer, examples, bar.update)
    refused = [one for one in told if isinstance(one, Refusal)]
    if len(refused) == len(told):
        raise ConfigError(f"{name} answered none of {len(told)} examples; the first: {refused[0].reason}")
    for one in refused:
        bad.add(one.example.place, f"{name}: {one.reason}")
    return told


def _answered(told: Sequence[Prediction | Refusal]) -> dict[int, Prediction]:
    return {place: one for place, one in enumerate(told) if isinstance(one, Prediction)}


def _pairs(
    first: Sequence[Prediction | Refusal], second: Sequence[Prediction | Refusal]
) -> list[tuple[Prediction, Prediction]]:
    """Examples that both answered."""
    others = _answered(second)
    pairs = [(one, others[place]) for place, one in _answered(first).items() if place in others]
    if not pairs:
        raise ConfigError("no example was answered by both: there is nothing to compare")
    return pairs


def _print_tables(reports: dict[str, Report], comparison: Report | None) -> None:
    for name, report in reports.items():
        print(f"== {name}\n\n{describe_report(report)}\n")
    if comparison:
        first, second = reports
        print(f"== {second} against {first}\n\n{describe_comparison(comparison)}\n")


def _write_files(
    values: argparse.Namespace, reports: dict[str, Report], comparison: Report | None, bad: BadLines
) -> None:
    if values.plot:
        with _whole_or_not_there(Path(values.plot)):
            draw_reliability(reports, Path(values.plot))
    if not values.json:
        return
    whole = {
        "data": values.data,
        "by": values.by,
        "bad_lines": [{"place": place, "reason": reason} for place, reason in bad.all],
        "reports": reports,
        "comparison": comparison,
    }
    text = json.dumps(whole, ensure_ascii=False, indent=1, allow_nan=False)
    if values.json == "-":
        sys.stdout.buffer.write(text.encode() + b"\n")  # JSON is UTF-8, whatever the terminal's is
    else:
        with _whole_or_not_there(Path(values.json)):
            Path(values.json).write_text(text + "\n", encoding="utf-8")


@contextlib.contextmanager
def _whole_or_not_there(target: Path) -> Iterator[None]:
    """A part of it would be taken for results, and stand in the way of the next try."""
    try:
        with full_disk_named(target.parent):
            yield
    except BaseException:
        if target.is_file():
            target.unlink()
        raise


def _check_targets(targets: Sequence[Path]) -> None:
    """Raises ConfigError now, and not after an hour of asking."""
    for target in targets:
        if target.is_file():
            raise ConfigError(f"{target} exists: results are never written over a file")
        _check_writable(target)
    if len({target.resolve() for target in targets}) < len(targets):
        raise ConfigError(f"{targets[0]} cannot be both the plot and the report")


def _check_writable(target: Path) -> None:
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
    except OSError as bad:
        raise ConfigError(f"{target}: {bad.strerror}") from bad
    if target.is_dir() or not os.access(target if target.exists() else target.parent, os.W_OK):
        raise ConfigError(f"{target} cannot be written")


def _name(values: argparse.Namespace) -> str:
    return str(values.server or values.model or f"embedded model, {values.precision or DEFAULT_PRECISION}")


def _distinct(name: str, taken: dict[str, Answerer]) -> str:
    return f"{name} (again)" if name in taken else name
