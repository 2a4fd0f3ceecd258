"""The options of a choice in another order, and examples apart by what they are about. Pure."""

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import replace

from ostraka.evaluation.examples import Example

HELD_OUT_SHARE = 0.1
HELD_OUT_MOST = 500
"""They are asked many times over: more would take time from learning."""


def reorder(example: Example, order: Sequence[int]) -> Example:
    """A choice whose option i is the one that was `order[i]`."""
    if not isinstance(example.criteria, dict):
        raise TypeError(f"{example.place} is not a choice")
    names = tuple(example.options[place] for place in order)
    criteria = {name: example.criteria[name] for name in names}
    return replace(example, criteria=criteria, options=names, label=list(order).index(example.label))


def split(examples: Sequence[Example]) -> tuple[list[Example], list[Example]]:
    """(training, held out). All questions on a state are on the same side, however the state is spaced or capitalised:
    a model that had seen the state would seem to know. The same state is on the same side whatever else there is, as
    long as HELD_OUT_MOST is not reached."""
    share = min(HELD_OUT_SHARE, HELD_OUT_MOST / max(1, len(examples)))
    held = [_place(example.state) < share for example in examples]
    return _where(examples, [not one for one in held]), _where(examples, held)


def _where(examples: Iterable[Example], chosen: Iterable[bool]) -> list[Example]:
    return [example for example, is_chosen in zip(examples, chosen, strict=True) if is_chosen]


def _place(state: object) -> float:
    """From 0 to 1, the same for the same state."""
    text = state if isinstance(state, str) else json.dumps(state, sort_keys=True, ensure_ascii=False)
    digest = hashlib.sha256(" ".join(text.casefold().split()).encode(errors="surrogatepass")).digest()
    return int.from_bytes(digest[:8], "big") / 2**64
