"""Examples for the tests of tuning: encoded by hand, or read from lines."""

import json
from collections.abc import Sequence
from typing import Any

import numpy as np

from ostraka.evaluation.examples import Example, parse_example
from ostraka.tuning.encoding import Encoded
from ostraka_gateway.schemas import parse_request


def example(**changes: Any) -> Example:
    fields = {"state": "It rains.", "question": "Is it dry?", "type": "noul", "label": False, "source": "s"} | changes
    return parse_example(json.dumps(fields).encode(), "f:1")


def encoded(prefix: Sequence[int], rests: Sequence[Sequence[int]], *, form: str = "noul") -> Encoded:
    one = example() if form == "noul" else example(type="choice", options=["a", "b", "c"], label=0)
    targets = np.arange(len(rests)) == 0
    suffixes = tuple(np.array(rest, np.int64) for rest in rests)
    return Encoded(one, parse_request(one.body()), np.array(prefix, np.int64), suffixes, targets.astype(np.float32))
