"""The rule stands in the question: should this be escalated if ...? Two cases, of which it applies to one."""

from collections.abc import Iterator
from random import Random

from training.own_data.fragments import Fragments, fill
from training.own_data.scenario import Scenario
from training.own_data.slots import draw


def make(fragments: Fragments, rng: Random, *, heldout: bool) -> Iterator[Scenario]:
    """Without end."""
    while True:
        slots = draw(rng, heldout=heldout)
        rule, *cases = rng.choice(fragments.lines("rule")).split(" | ")
        before = [rng.choice(fragments.lines("surround"))] if rng.random() < 0.5 else []
        after = [rng.choice(fragments.lines("end"))] if rng.random() < 0.5 else []
        first, second = (fill(" ".join([*before, case, *after]), slots) for case in cases)
        yield Scenario((first, second), {"applies": (True, False)}, slots | {"rule": rule})
