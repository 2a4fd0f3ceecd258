"""The same event affirmed or denied, in plain and in roundabout words."""

from collections.abc import Iterator
from random import Random

from training.own_data.fragments import Fragments, fill
from training.own_data.scenario import Choice, Scenario
from training.own_data.slots import draw

_VERDICTS = (("confirmed", "denied", "not mentioned"), ("yes", "no", "not stated"), ("true", "false", "unknown"))


def make(fragments: Fragments, rng: Random, *, heldout: bool) -> Iterator[Scenario]:
    """Without end."""
    while True:
        slots = draw(rng, heldout=heldout)
        event, affirmed, denied = rng.choice(fragments.lines("event")).split(" | ")
        fillers = rng.sample(fragments.lines("filler"), rng.randint(0, 2)) if not heldout else fragments.lines("filler")
        place = rng.randint(0, len(fillers))
        first, second = (
            fill(" ".join([*fillers[:place], rng.choice(ways.split(" / ")), *fillers[place:]]), slots)
            for ways in (affirmed, denied)
        )
        told = slots | {"event": fill(event, slots)}
        choices = (
            (Choice(fill(rng.choice(fragments.words("choice")), told), list(rng.choice(_VERDICTS)), (0, 1)),)
            if rng.random() < 0.25
            else ()
        )
        yield Scenario((first, second), {"happened": (True, False)}, told, choices)
