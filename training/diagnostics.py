"""Where a model is weak: negated questions, the order of options, facts that are missing, the length of the state.

    python -m training.diagnostics DATA.jsonl.gz ... [--model DIR | --server URL]

Each view is the same examples told apart by another property, measured as `ostraka eval` does. The order of options is
asked anew: every choice with its options turned round, `ORDERS` times.
"""

import argparse
import json
import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from statistics import fmean

from ostraka.answerer_options import find_answerer, register_answerer
from ostraka.answerers import Answerer
from ostraka.evaluation.asking import ask
from ostraka.evaluation.examples import Example, Prediction, read_examples
from ostraka.evaluation.report import build_report
from ostraka.evaluation.samples import decide
from ostraka.evaluation.tables import describe_report

ORDERS = 3
LENGTHS = (15, 40, 100, 250)
"""Upper ends of the buckets, in words of the state; beyond the last is one more."""
_NEGATED = re.compile(
    r"\b(not|no|never|nothing|nobody|none|neither|without|false|wrong|incorrect|inaccurate|untrue|deny|denies|unless"
    r"|lacks?|missing|absent|fails?|opposite|contradicts?)\b|n't\b",
    re.IGNORECASE,
)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m training.diagnostics", description=__doc__)
    parser.add_argument("data", nargs="+")
    parser.add_argument("--missing-kind", default="missing", help="the `kind` of lines that ask for facts left out")
    register_answerer(parser)
    values = parser.parse_args()
    examples = list(read_examples(values.data, "kind", _complain))
    answerer = find_answerer(values)
    predictions = [one for one in ask(answerer, examples) if isinstance(one, Prediction)]
    for title, view in views(values.missing_kind).items():
        regrouped = regroup(predictions, view)
        if regrouped:
            print(f"== {title}\n\n{describe_report(build_report(regrouped))}\n")
    print(f"== order of options\n\n{describe_orders(predictions, answerer)}")


def views(missing_kind: str) -> dict[str, Callable[[Example], str | None]]:
    """Title -> the group of an example in that view, None where it has no place in it."""
    return {
        "negated questions": lambda one: negation_group(one) if one.form == "noul" else None,
        "length of the state": length_group,
        "missing facts": lambda one: missing_group(one) if one.group == missing_kind else None,
    }


def regroup(predictions: Sequence[Prediction], view: Callable[[Example], str | None]) -> list[Prediction]:
    told = ((prediction, view(prediction.example)) for prediction in predictions)
    return [replace(one, example=replace(one.example, group=group)) for one, group in told if group is not None]


def negation_group(example: Example) -> str:
    return "negated" if _NEGATED.search(str(example.question)) else "plain"


def missing_group(example: Example) -> str:
    """A model that takes what it is asked for what it was told is right where yes is, and wrong where no is."""
    return f"{'yes' if example.label else 'no'} is right" if example.form == "noul" else example.form


def length_group(example: Example) -> str:
    """`016-040 words`: the zeros keep the buckets in order."""
    text = example.state if isinstance(example.state, str) else json.dumps(example.state, ensure_ascii=False)
    words, low = len(text.split()), 1
    for high in LENGTHS:
        if words <= high:
            return f"{low:03}-{high:03} words"
        low = high + 1
    return f"{low:03} words and more"


def turn(example: Example, steps: int) -> Example:
    """The same choice with its options moved on by `steps` places."""
    if not isinstance(example.criteria, dict):
        raise TypeError(f"{example.place} is not a choice")
    names = [*example.options[-steps:], *example.options[:-steps]]
    criteria = {name: example.criteria[name] for name in names}
    label = names.index(example.options[example.label])
    return replace(example, criteria=criteria, options=tuple(names), label=label)


def describe_orders(predictions: Sequence[Prediction], answerer: Answerer) -> str:
    choices = [one for one in predictions if one.example.form == "choice"]
    if not choices:
        return "no choices"
    turned = [turn(one.example, step % one.example.size) for one in choices for step in range(1, ORDERS)]
    again = iter(ask(answerer, turned))
    same, moved = [], []
    for one in choices:
        names = [one.example.options[decide(one)]]
        before = dict(zip(one.example.options, one.probabilities, strict=True))
        for _ in range(1, ORDERS):
            other = next(again)
            if isinstance(other, Prediction):
                names.append(other.example.options[decide(other)])
                after = zip(other.example.options, other.probabilities, strict=True)
                moved.append(max(abs(before[name] - p) for name, p in after))
        same.append(float(len(set(names)) == 1))
    return (
        f"{len(choices)} choices in {ORDERS} orders: the same option every time in {fmean(same):.3f}; "
        f"a probability moves by up to {max(moved, default=0.0):.3f}, {fmean(moved or [0.0]):.3f} on average"
    )


def _complain(place: str, reason: str) -> None:
    print(f"{place}: {reason}", file=sys.stderr)


if __name__ == "__main__":
    main()
