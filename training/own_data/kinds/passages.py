"""Passages and what is asked of them; requests that may be granted, and such that must not be."""

from collections.abc import Iterator
from random import Random

from training.own_data.fragments import Fragments
from training.own_data.scenario import Choice, Scenario

Line = tuple[str, list[str]]

FOUND_SHARE = 0.25


def answers(fragments: Fragments, rng: Random, *, heldout: bool) -> Iterator[Scenario]:
    """Without end. Of two passages one answers the question; the other answers another one of the same document."""
    while True:
        name = rng.choice(_documents(fragments, heldout=heldout))
        lines = [_parse(line) for line in fragments.all_lines(f"document {name}")]
        chosen = rng.sample(lines, len(lines))
        yield _find(fragments, chosen, rng) if rng.random() < FOUND_SHARE else _read(fragments, chosen, rng)


def harm(fragments: Fragments, rng: Random, *, heldout: bool) -> Iterator[Scenario]:  # noqa: ARG001  as every kind
    """Without end. A request that may be granted and one that must not be, in much the same words or in any."""
    while True:
        granted, refused = (rng.choice(fragments.lines("request")).split(" | ")[place] for place in (0, 1))
        if rng.random() < 0.6:
            granted, refused = rng.choice(fragments.lines("request")).split(" | ")
        yes, no = (rng.choice(fragments.words(f"label {name}")).split(" | ") for name in ("granted", "refused"))
        options: list[str] | dict[str, str | None] = [yes[0], no[0]]
        if rng.random() < 0.5:
            options = {yes[0]: yes[1], no[0]: no[1]}
        choice = Choice(rng.choice(fragments.words("choice")), options, (0, 1))
        choices = (choice,) if rng.random() < 0.3 else ()
        yield Scenario((granted, refused), {"harmful": (False, True)}, choices=choices)


def _documents(fragments: Fragments, *, heldout: bool) -> list[str]:
    """Whole documents are held out, since their sentences are each other's wrong answers."""
    return [name for place, name in enumerate(fragments.names("document")) if (place % 6 == 5) == heldout]


def _parse(line: str) -> Line:
    said, questions = line.split(" | ")
    return said, questions.split(" / ")


def _read(fragments: Fragments, lines: list[Line], rng: Random) -> Scenario:
    """The passage is the state, perhaps among other sentences of its document."""
    (first, asked), (second, others), *rest = lines
    around = [said for said, _ in rest[: rng.choice((0, 0, 0, 1, 2))]]
    place = rng.randint(0, len(around))
    texts = [" ".join([*around[:place], said, *around[place:]]) for said in (first, second)]
    question = rng.choice(asked)
    options = [question, rng.choice(others), *(rng.choice(questions) for said, questions in rest if said not in around)]
    choice = Choice(
        rng.choice(fragments.words("choice")), [f"{one}?" for one in options[: rng.randint(2, len(options))]], (0, 1)
    )
    choices = (choice,) if rng.random() < 0.4 else ()
    return Scenario((texts[0], texts[1]), {"answered": (True, False)}, {"q": question}, choices)


def _find(fragments: Fragments, lines: list[Line], rng: Random) -> Scenario:
    """The question is the state, the passages are the options."""
    options = lines[: rng.randint(2, 5)]
    first, second = (f"{rng.choice(questions).capitalize()}?" for _, questions in options[:2])
    choice = Choice(rng.choice(fragments.words("choice passage")), [said for said, _ in options], (0, 1))
    return Scenario((first, second), choices=(choice,))
