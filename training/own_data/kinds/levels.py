"""A neutral topic and a clause that sets the level: urgency, anger, politeness, satisfaction, severity."""

from collections.abc import Iterator
from random import Random

from training.own_data.fragments import Fragments, fill
from training.own_data.scenario import Choice, Scenario, Score
from training.own_data.slots import draw


def make(fragments: Fragments, rng: Random, *, heldout: bool) -> Iterator[Scenario]:
    """Without end."""
    levels = sorted(int(name) for name in fragments.names("clause"))
    truths = {name: _truth(fragments.all_lines(f"truth {name}")[0]) for name in fragments.names("truth")}
    while True:
        claim = rng.choice(list(truths))
        holds, fails = truths[claim]
        first, second = rng.choice(holds), rng.choice(fails)
        slots = draw(rng, heldout=heldout)
        topic, is_before = rng.choice(fragments.lines("topic")), rng.random() < 0.7
        clauses = [rng.choice(fragments.lines(f"clause {level}")) for level in (first, second)]
        texts = [fill(" ".join((topic, clause) if is_before else (clause, topic)), slots) for clause in clauses]
        # A claim that is a grey area for one of the two levels is not asked of them.
        claims = {
            name: (first in yes, second in yes) for name, (yes, no) in truths.items() if {first, second} <= {*yes, *no}
        }
        asked = _rate(fragments, rng, (levels.index(first), levels.index(second)))
        is_score, is_choice = rng.random() < 0.45, rng.random() < 0.25
        choices = (Choice(*asked),) if is_choice else ()
        scores = (Score(*asked),) if is_score and not is_choice else ()
        yield Scenario((texts[0], texts[1]), claims, slots, choices, scores)


def _rate(fragments: Fragments, rng: Random, levels: tuple[int, int]) -> tuple[str, list[str], tuple[int, int]]:
    """(question, names, answers). A name given twice joins two levels into one."""
    of_level = [name.strip() for name in rng.choice(fragments.words("levels")).split("|")]
    names = list(dict.fromkeys(of_level))
    first, second = (names.index(of_level[level]) for level in levels)
    return rng.choice(fragments.words("score question")), names, (first, second)


def _truth(line: str) -> tuple[list[int], list[int]]:
    """`2 3 / 0 1`: the levels where the claim holds, and where it does not."""
    holds, fails = line.split("/")
    return [int(level) for level in holds.split()], [int(level) for level in fails.split()]
