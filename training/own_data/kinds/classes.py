"""Whole messages of several classes: routing, intent, language, spam, consent. A topic may come before."""

from collections.abc import Iterator
from random import Random

from training.own_data.fragments import Fragments, fill
from training.own_data.scenario import Choice, Scenario
from training.own_data.slots import draw


def make(fragments: Fragments, rng: Random, *, heldout: bool) -> Iterator[Scenario]:
    """Without end."""
    classes = fragments.names("class")
    while True:
        pair = rng.sample(classes, 2)
        slots = draw(rng, heldout=heldout)
        topic = rng.choice(fragments.lines("topic")) + " " if fragments.has("topic") else ""
        first, second = (fill(topic + rng.choice(fragments.lines(f"class {name}")), slots) for name in pair)
        labelled = {name: rng.choice(fragments.words(f"label {name}")).split(" | ") for name in classes}
        # One class a scenario gives the label's wording; its own wordings need none.
        told = rng.choice(pair)
        truths = {pair[0]: (True, False), pair[1]: (False, True)}
        claims = {told: truths[told]} if fragments.has("ask *") else truths
        choices = (_choice(fragments, labelled, pair, rng),) if rng.random() < 0.8 else ()
        yield Scenario((first, second), claims, slots | {"label": labelled[told][0]}, choices)


def _choice(fragments: Fragments, labelled: dict[str, list[str]], pair: list[str], rng: Random) -> Choice:
    others = [name for name in labelled if name not in pair]
    asked = pair + rng.sample(others, rng.randint(0, min(5, len(others))))
    names = [labelled[name][0] for name in asked]
    described = {labelled[name][0]: labelled[name][1] if rng.random() < 0.8 else None for name in asked}
    question = rng.choice(fragments.words("choice"))
    return Choice(question, described if rng.random() < 0.5 else names, (0, 1))
