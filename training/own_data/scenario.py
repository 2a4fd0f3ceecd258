"""What a kind of question makes: two states that differ in little, and what is true of each.

Two states and two questions with opposed answers are four examples. In them neither the state alone nor the question
alone says anything about the answer, so a model has to read both.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

State = str | Mapping[str, object] | Sequence[object]
Pair = tuple[State, State]
Example = dict[str, object]


@dataclass(frozen=True, slots=True)
class Choice:
    """`answers`: the place of the right option for the first and the second state."""

    question: str
    options: list[str] | dict[str, str | None]
    answers: tuple[int, int]


@dataclass(frozen=True, slots=True)
class Score:
    """`levels`, lowest first; `answers`: the right level for the first and the second state."""

    question: str
    levels: list[str]
    answers: tuple[int, int]


@dataclass(frozen=True, slots=True)
class Scenario:
    """`claims`: name -> (does it hold for the first state, for the second); `slots` fill the wording of questions."""

    states: Pair
    claims: Mapping[str, tuple[bool, bool]] = field(default_factory=dict)
    slots: Mapping[str, str] = field(default_factory=dict)
    choices: tuple[Choice, ...] = ()
    scores: tuple[Score, ...] = ()
