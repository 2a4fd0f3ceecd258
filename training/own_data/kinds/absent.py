"""What a text does not say: facts left out, addresses with a gap."""

from collections.abc import Iterator
from random import Random

from training.own_data.fragments import Fragments, fill
from training.own_data.scenario import Choice, Scenario
from training.own_data.slots import draw

_PARTS = ("name", "street", "number", "postcode", "town")


def missing(fragments: Fragments, rng: Random, *, heldout: bool) -> Iterator[Scenario]:
    """Without end. The second text leaves the fact out, or gives another value."""
    while True:
        slots = draw(rng, heldout=heldout)
        asked, *others = rng.sample(fragments.lines("fact"), min(4, len(fragments.lines("fact"))))
        what, values, sentences = asked.split(" | ")
        value, *wrong = rng.sample(values.split(", "), 4 if len(values.split(", ")) > 3 else 3)
        around = [_say(other, rng) for other in rng.sample(others, rng.randint(0, len(others)))]
        around += rng.sample(fragments.lines("filler"), 1) if not around or rng.random() < 0.4 else []
        is_absent = rng.random() < 0.65
        sentence = rng.choice(sentences.split(" / "))
        place = rng.randint(0, len(around))
        texts = [
            fill(" ".join([*around[:place], *said, *around[place:]]), slots)
            for said in ([_put(sentence, value)], [] if is_absent else [_put(sentence, wrong[0])])
        ]
        claims = {"value": (True, False)} | ({"stated": (True, False)} if is_absent else {})
        choices = (_values(fragments, what, [value, *wrong], is_absent, rng),) if rng.random() < 0.5 else ()
        yield Scenario((texts[0], texts[1]), claims, slots | {"what": what, "v": value}, choices)


def address(fragments: Fragments, rng: Random, *, heldout: bool) -> Iterator[Scenario]:
    """Without end. A complete address beside one with a gap, or two different gaps."""
    while True:
        slots = draw(rng, heldout=heldout)
        postcode = f"{rng.randrange(10000, 99999)}"
        parts = {"name": slots["name"], "street": slots["street"], "number": slots["number"],
                 "postcode": postcode, "town": slots["city"]}  # fmt: skip
        gap, other = rng.sample(_PARTS, 2)
        lead, style = rng.choice(fragments.lines("lead")), rng.randrange(4)
        is_choice = rng.random() < 0.4
        first_gap = other if is_choice else None
        first, second = (
            _lay_out({name: part for name, part in parts.items() if name != left_out}, lead, style)
            for left_out in (first_gap, gap)
        )
        told = slots | {"part": rng.choice(fragments.words(f"part {gap}"))}
        if is_choice:
            names = [rng.choice(fragments.words(f"part {name}")) for name in _PARTS]
            answers = (_PARTS.index(other), _PARTS.index(gap))
            choices = (Choice(rng.choice(fragments.words("choice")), names, answers),)
            yield Scenario((first, second), {"part": (True, False)}, told, choices)
        else:
            yield Scenario((first, second), {"complete": (True, False), "part": (True, False)}, told)


def _values(fragments: Fragments, what: str, values: list[str], is_absent: bool, rng: Random) -> Choice:  # noqa: FBT001
    unknown = rng.choice(fragments.words("unknown"))
    question = fill(rng.choice(fragments.words("choice")), {"what": what})
    return Choice(question, [*values, unknown], (0, len(values) if is_absent else 1))


def _say(fact: str, rng: Random) -> str:
    _, values, sentences = fact.split(" | ")
    return _put(rng.choice(sentences.split(" / ")), rng.choice(values.split(", ")))


def _put(sentence: str, value: str) -> str:
    said = sentence.replace("{v}", value)
    return said[:1].upper() + said[1:]


def _lay_out(parts: dict[str, str], lead: str, style: int) -> str | dict[str, object]:
    if style == 0:
        return dict(parts)
    if style == 1:
        return {name: parts.get(name, "") for name in _PARTS}
    road = " ".join(parts[name] for name in ("street", "number") if name in parts)
    place = " ".join(parts[name] for name in ("postcode", "town") if name in parts)
    lines = [line for line in (parts.get("name", ""), road, place) if line]
    return f"{lead}\n" + "\n".join(lines) if style == 2 else f"{lead} " + ", ".join(lines)
