"""How two models answered the same requests: the figures by which a rollout goes on or is given up. Pure.

It reads bodies of either dialect: `answers` is a map or a list of objects, each with a probability or several.
"""

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass, fields
from typing import Any

OVERLOAD_STATUSES = frozenset({429, 503, 504, 529})
"""They say how busy a server is, not how it answers."""
DECIDED_AT = 0.5


@dataclass(frozen=True, slots=True)
class Figures:
    """Sums, so that those of several gateways can be added. `flips`: answers that decide otherwise. `errors`: requests
    that the old model answered and the new one did not, `unanswered` those it was too busy for, `dropped` those that
    were not even sent, because too many waited. `passed_on` were answered by the new model for a client; `taken_back`
    it failed to answer, `refused` it was too busy for, so that the old one did."""

    requests: int = 0
    answers: int = 0
    probabilities: int = 0
    difference_sum: float = 0.0
    largest_difference: float = 0.0
    flips: int = 0
    errors: int = 0
    unanswered: int = 0
    dropped: int = 0
    old_s: float = 0.0
    new_s: float = 0.0
    passed_on: int = 0
    taken_back: int = 0
    refused: int = 0

    def __add__(self, other: "Figures") -> "Figures":
        sums = {f.name: getattr(self, f.name) + getattr(other, f.name) for f in fields(Figures)}
        return Figures(**sums | {"largest_difference": max(self.largest_difference, other.largest_difference)})

    @property
    def mean_difference(self) -> float:
        return self.difference_sum / self.probabilities if self.probabilities else 0.0

    @property
    def flip_share(self) -> float:
        return self.flips / self.answers if self.answers else 0.0

    @property
    def latency_ratio(self) -> float:
        """The new model's time by the old one's; 0 before anything was compared."""
        return self.new_s / self.old_s if self.old_s else 0.0

    def summary(self) -> dict[str, float]:
        """For people and logs."""
        counts = {name: value for name, value in asdict(self).items() if isinstance(value, int)}
        measures = {
            "mean_difference": self.mean_difference,
            "largest_difference": self.largest_difference,
            "flip_share": self.flip_share,
            "latency_ratio": self.latency_ratio,
        }
        return counts | {name: round(value, 6) for name, value in measures.items()}


@dataclass(frozen=True, slots=True)
class Answered:
    status: int
    body: bytes
    seconds: float


def compare(old: Answered, new: Answered) -> Figures:
    """Of one request that the old model answered."""
    if new.status in OVERLOAD_STATUSES:
        return Figures(unanswered=1)
    try:
        pairs = list(zip(_answers(old.body), _answers(new.body), strict=True)) if new.status == old.status else None
    except ValueError:  # not JSON, or other answers than were asked for
        pairs = None
    if pairs is None or any(len(was.probabilities) != len(now.probabilities) for was, now in pairs):
        return Figures(errors=1)
    differences = [
        abs(before - after)
        for was, now in pairs
        for before, after in zip(was.probabilities, now.probabilities, strict=True)
    ]
    return Figures(
        requests=1,
        answers=len(pairs),
        probabilities=len(differences),
        difference_sum=sum(differences),
        largest_difference=max(differences, default=0.0),
        flips=sum(was.decision != now.decision for was, now in pairs),
        old_s=old.seconds,
        new_s=new.seconds,
    )


@dataclass(frozen=True, slots=True)
class _Answer:
    decision: object
    probabilities: list[float]


def _answers(body: bytes) -> Iterator[_Answer]:
    """Raises ValueError where it has none."""
    found = json.loads(body)
    try:
        answers = found["answers"]
        for answer in answers.values() if isinstance(answers, dict) else answers:
            yield _read(answer)
    except (KeyError, TypeError, AttributeError) as bad:
        raise ValueError("not the answers of a request") from bad


def _read(answer: dict[str, Any]) -> _Answer:
    """A flip is another side of one half, another option, another most probable level."""
    one = answer.get("noul", answer.get("probability"))
    if one is not None:
        return _Answer(one >= DECIDED_AT, [one])
    listed = answer.get("probabilities") or []
    several = list(listed.values()) if isinstance(listed, dict) else [each["probability"] for each in listed]
    chosen = answer.get("choice")
    return _Answer(several.index(max(several)) if chosen is None and several else chosen, several)
