"""The report as text for a terminal. Pure."""

from collections.abc import Iterable, Sequence

from ostraka.evaluation.examples import Form
from ostraka.evaluation.report import Report, Row
from ostraka.evaluation.samples import MEASURES

PLOT_COLUMNS = 41
GROUP_CHARS = 40
TITLES: dict[Form, str] = {"noul": "yes/no", "choice": "choice", "score": "score"}
_MOVES = ("same_decision", "mean_move", "largest_move")
_LABELS = {"auc": "AUC", "ece": "ECE", "brier": "Brier", "mae": "MAE", "within_one": "within 1"}


def describe_report(report: Report) -> str:
    blocks = []
    for form, told in _forms(report):
        blocks += [_groups(form, told["groups"]), _reliability(form, told["reliability"])]
        if "thresholds" in told:
            blocks.append(_thresholds(told["thresholds"]))
        blocks.append(_coverage(form, told["coverage"]))
    return "\n\n".join([*blocks, f"Intervals: {report['intervals']}."])


def describe_comparison(comparison: Report) -> str:
    """Differences: second minus first."""
    blocks = []
    for form, told in _forms(comparison):
        head = ["group", "examples", "same decision", "mean move", "largest", *_measure_labels(form)]
        rows = [
            [_group(row["group"]), row["examples"], *(_number(row.get(key)) for key in _MOVES),
             *(_measure(row[key], signed=True) for key in MEASURES[form])]
            for row in told["groups"]
        ]  # fmt: skip
        blocks.append(f"{TITLES[form]}, second minus first\n" + _table(head, rows))
    return "\n\n".join([*blocks, f"Intervals: {comparison['intervals']}."])


def _forms(report: Report) -> Iterable[tuple[Form, dict[str, list[Row]]]]:
    return report["forms"].items()  # type: ignore[attr-defined, no-any-return]


def _groups(form: Form, groups: Sequence[Row]) -> str:
    extra = [("yes_share", "yes")] if form == "noul" else [("chance", "chance")]
    head = ["group", "examples", *(label for _, label in extra), *_measure_labels(form)]
    rows = [
        [_group(row["group"]), row["examples"], *(_number(row.get(key)) for key, _ in extra),
         *(_measure(row[key]) for key in MEASURES[form])]
        for row in groups
    ]  # fmt: skip
    return f"{TITLES[form]}\n" + _table(head, rows)


def _reliability(form: Form, bins: Sequence[Row]) -> str:
    """`o` is what was said, `x` what came true, `*` both."""
    said = "P(yes)" if form == "noul" else "P(decided)"
    rows = [
        [f"{row['low']:.1f}-{row['high']:.1f}", row["count"], _number(row["mean_probability"]),
         _number(row["share_true"]), _marks(row["mean_probability"], row["share_true"])]
        for row in bins
    ]  # fmt: skip
    return f"{TITLES[form]}, reliability (o said, x came true)\n" + _table(
        [said, "examples", "said", "true", "0 to 1"], rows
    )


def _marks(said: object, came: object) -> str:
    line = ["."] * PLOT_COLUMNS
    for value, mark in ((said, "o"), (came, "x")):
        if isinstance(value, float):
            place = round(value * (PLOT_COLUMNS - 1))
            line[place] = "*" if line[place] == "o" else mark
    return "".join(line)


def _thresholds(rows: Sequence[Row]) -> str:
    keys = ("threshold", "yes_share", "precision", "recall", "accuracy")
    head = ["yes from", "said yes", "precision", "recall", "accuracy"]
    return "yes/no, thresholds\n" + _table(head, [[_number(row[key]) for key in keys] for row in rows])


def _coverage(form: Form, rows: Sequence[Row]) -> str:
    head = ["decided from", "share", "accuracy"]
    told = [[_number(row[key]) for key in ("confidence", "share", "accuracy")] for row in rows]
    return f"{TITLES[form]}, only decided where sure enough\n" + _table(head, told)


def _group(name: object) -> str:
    """As a terminal can take it: it is whatever the data hold. JSON has it whole."""
    plain = "".join(each if each.isprintable() else "\ufffd" for each in str(name))
    return plain if len(plain) <= GROUP_CHARS else f"{plain[: GROUP_CHARS - 3]}..."


def _measure_labels(form: Form) -> list[str]:
    return [_LABELS.get(key, key) for key in MEASURES[form]]


def _measure(cell: object, *, signed: bool = False) -> str:
    if not isinstance(cell, dict) or cell["value"] is None:
        return "-"
    form = "{:+.3f}" if signed else "{:.3f}"
    value = form.format(cell["value"])
    return value if cell["low"] is None else f"{value} [{form.format(cell['low'])}, {form.format(cell['high'])}]"


def _number(value: object) -> str:
    return f"{value:.3f}" if isinstance(value, float) else "-"


def _table(head: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """The first column to the left, the others to the right."""
    cells = [list(head), *([str(cell) for cell in row] for row in rows)]
    widths = [max(len(row[column]) for row in cells) for column in range(len(head))]
    return "\n".join("  ".join([row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])]) for row in cells)
