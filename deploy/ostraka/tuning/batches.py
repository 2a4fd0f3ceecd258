"""Encoded examples -> batches: what is read together, padded to rows of the same length, and who may see whom. Pure.

A row is an example: its prefix, then each of its prompts' rests. A rest sees the prefix and itself, not the others: so
the prefix is read once for all the prompts of a question, as when it is served.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from random import Random

import numpy as np
import numpy.typing as npt

from ostraka.evaluation.examples import Example
from ostraka.tuning.encoding import Encoded, Floats, TokenIds

BATCH_TOKENS = 2048
"""With the padding: about 20 examples. A step on fewer wastes its fixed cost, on more it learns less an hour."""
WINDOW = 2500
"""Examples sorted by length at a time: enough to fill batches of like lengths, in an order that stays by chance."""
PREFIX = 0
PADDING = -1


@dataclass(frozen=True, slots=True)
class Batch:
    """`token_ids`, `positions`, `segments`: [examples, longest]; a segment is PREFIX, PADDING, or a rest's number.

    `last`: for each prompt the place of its last token in the flattened rows; `targets`: what its answer should be;
    `owners`: whose it is; `is_choice`: of each example.
    """

    token_ids: TokenIds
    positions: TokenIds
    segments: TokenIds
    last: TokenIds
    targets: Floats
    owners: TokenIds
    is_choice: npt.NDArray[np.bool_]

    @property
    def examples(self) -> int:
        return len(self.is_choice)


def collate(encoded: Sequence[Encoded]) -> Batch:
    longest = max(one.tokens for one in encoded)
    shape = (len(encoded), longest)
    token_ids, positions = np.zeros(shape, np.int64), np.zeros(shape, np.int64)
    segments = np.full(shape, PADDING, np.int64)
    last, owners = [], []
    for row, one in enumerate(encoded):
        end = begin = len(one.prefix)
        token_ids[row, :begin], positions[row, :begin], segments[row, :begin] = one.prefix, np.arange(begin), PREFIX
        for number, suffix in enumerate(one.suffixes, 1):
            at = slice(end, end + len(suffix))
            token_ids[row, at], segments[row, at] = suffix, number
            positions[row, at] = begin + np.arange(len(suffix))
            end = at.stop
            last.append(row * longest + end - 1)
            owners.append(row)
    targets = np.concatenate([one.targets for one in encoded])
    is_choice = np.array([one.example.form == "choice" for one in encoded])
    return Batch(token_ids, positions, segments, np.array(last), targets, np.array(owners), is_choice)


def visible(segments: TokenIds) -> npt.NDArray[np.bool_]:
    """[examples, reader, read]: what is before a token, of the prefix or of its own rest. Padding sees padding."""
    longest = segments.shape[1]
    before = np.tri(longest, dtype=np.bool_)
    reader, read = segments[:, :, None], segments[:, None, :]
    seen: npt.NDArray[np.bool_] = before & ((reader == read) | (read == PREFIX))
    return seen


def by_length(encoded: Sequence[Encoded], budget: int = BATCH_TOKENS) -> list[list[int]]:
    """Places in `encoded`, shortest first, in runs that fit the budget with their padding; at least one each."""
    runs: list[list[int]] = []
    run: list[int] = []
    for place in sorted(range(len(encoded)), key=lambda place: encoded[place].tokens):
        if run and (len(run) + 1) * encoded[place].tokens > budget:
            runs.append(run)
            run = []
        run.append(place)
    return [*runs, run] if run else runs


def epoch(
    examples: Sequence[Example], encode: Callable[[Example, Random], Encoded], seed: int, number: int
) -> Iterator[list[Encoded]]:
    """All examples once, in batches. The same seed and number give the same, so that a tuning can be resumed."""
    random = Random(f"{seed} {number}")  # noqa: S311  an order, not a secret
    order = list(examples)
    random.shuffle(order)
    for first in range(0, len(order), WINDOW):
        encoded = [encode(example, random) for example in order[first : first + WINDOW]]
        runs = by_length(encoded)
        random.shuffle(runs)
        for run in runs:
            yield [encoded[place] for place in run]
