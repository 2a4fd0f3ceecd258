"""Scenarios -> examples, balanced: four yes/no examples of each, and its choices and scores on both states."""

from collections.abc import Iterator
from random import Random

from training.own_data.fragments import Fragments, Phrases, fill
from training.own_data.scenario import Choice, Example, Scenario, Score
from training.own_data.surface import dress, dress_question, surround

WRITTEN_SHARE = 0.65
"""Of questions asked as they were written: frames are many, and no user asks in frames most of the time."""

SURROUNDED = frozenset({"urgency", "tone", "severity", "satisfaction", "politeness", "routing", "intent", "negation"})
"""Kinds whose answer no sentence about a room can change."""
SURROUNDED_SHARE = 0.2


def compose(kind: str, scenario: Scenario, fragments: Fragments, rng: Random) -> Iterator[Example]:
    states = scenario.states
    if kind in SURROUNDED and rng.random() < SURROUNDED_SHARE:
        states = surround(states, Fragments("slots", heldout=fragments.is_heldout).lines("background"), rng)
    states = dress(states, rng)
    for question, labels in _opposed(scenario, fragments, rng):
        for state, label in zip(states, labels, strict=True):
            yield _example(state, question, "noul", label) | {"kind": kind}
    typed: tuple[Choice | Score, ...] = (*scenario.choices, *scenario.scores)
    for asked in typed:
        for state, place in zip(states, asked.answers, strict=True):
            yield _ask(state, asked, place, rng) | {"kind": kind}


def _opposed(scenario: Scenario, fragments: Fragments, rng: Random) -> Iterator[tuple[str, tuple[bool, bool]]]:
    """Two questions: what is yes for one is no for the other, on both states."""
    telling = [name for name, (first, second) in scenario.claims.items() if first != second]
    if not telling:
        return
    name = rng.choice(telling)
    wanted = scenario.claims[name]
    if rng.random() < 0.5:
        wanted = (wanted[1], wanted[0])
    yield _phrase(scenario, fragments.phrases(name), name, wanted, rng), wanted
    other = rng.choice(telling)
    opposite = (wanted[1], wanted[0])
    yield _phrase(scenario, fragments.phrases(other), other, opposite, rng), opposite


def _phrase(scenario: Scenario, phrases: Phrases, claim: str, wanted: tuple[bool, bool], rng: Random) -> str:
    written, framed = phrases.agreeing if scenario.claims[claim] == wanted else phrases.opposing
    wordings = written if not framed or (written and rng.random() < WRITTEN_SHARE) else framed
    return dress_question(fill(rng.choice(wordings), dict(scenario.slots)), rng)


def _example(state: object, question: str, form: str, label: bool | int) -> Example:  # noqa: FBT001  the label itself
    return {"state": state, "question": question, "type": form, "label": label}


def _ask(state: object, asked: Choice | Score, label: int, rng: Random) -> Example:
    if isinstance(asked, Score):
        return _example(state, asked.question, "score", label) | {"levels": asked.levels}
    names = list(asked.options)
    order = rng.sample(range(len(names)), len(names))
    options: object = [names[place] for place in order]
    if isinstance(asked.options, dict):
        options = {names[place]: asked.options[names[place]] for place in order}
    return _example(state, asked.question, "choice", order.index(label)) | {"options": options}
