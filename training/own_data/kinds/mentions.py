"""Messages of several sentences, of which one is exchanged: does it mention this thing, this personal datum?"""

from collections.abc import Iterator
from random import Random

from training.own_data.fragments import Fragments, fill
from training.own_data.scenario import Choice, Scenario
from training.own_data.slots import draw


def make(fragments: Fragments, rng: Random, *, heldout: bool) -> Iterator[Scenario]:
    """Without end. The class `none` has no label of its own: its sentences only look like the others."""
    classes = [name for name in fragments.names("class") if name != "none"]
    while True:
        slots = draw(rng, heldout=heldout)
        pair = rng.sample(classes, 2)
        is_plain = fragments.has("class none") and rng.random() < 0.6
        chosen = [pair[0], "none" if is_plain else pair[1]]
        around = _around(fragments, pair, classes, rng)
        place = rng.randint(0, len(around))
        first, second = (
            fill(" ".join([*around[:place], rng.choice(fragments.lines(f"class {name}")), *around[place:]]), slots)
            for name in chosen
        )
        told = pair[0] if is_plain else rng.choice(pair)
        truth = (told == pair[0], told != pair[0])
        claims = {told: truth} | ({"personal": (True, False)} if is_plain else {})
        labels = {name: rng.choice(fragments.words(f"label {name}")) for name in classes}
        choices = () if is_plain or rng.random() < 0.5 else (_choice(fragments, labels, pair, around, rng),)
        yield Scenario((first, second), claims, slots | {"label": labels[told]}, choices)


def _around(fragments: Fragments, pair: list[str], classes: list[str], rng: Random) -> list[str]:
    if fragments.has("plain"):
        return rng.sample(fragments.lines("plain"), rng.randint(0, 2))
    others = rng.sample([name for name in classes if name not in pair and name != "competitor"], rng.randint(1, 4))
    return [rng.choice(fragments.lines(f"class {name}")) for name in others]


def _choice(fragments: Fragments, labels: dict[str, str], pair: list[str], around: list[str], rng: Random) -> Choice:
    """Its other options are in neither text."""
    present = {name for name in labels if any(line in around for line in fragments.all_lines(f"class {name}"))} | set(
        pair
    )
    absent = [name for name in labels if name not in present]
    names = pair + rng.sample(absent, rng.randint(0, min(3, len(absent))))
    return Choice(rng.choice(fragments.words("choice")), [labels[name] for name in names], (0, 1))
