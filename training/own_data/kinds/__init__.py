"""Every kind of question: what makes its scenarios, and how many examples to make for training."""

from collections.abc import Callable, Iterator

from training.own_data.kinds import (
    absent,
    classes,
    figures,
    levels,
    mentions,
    negation,
    passages,
    policy,
    rules,
    structured,
)
from training.own_data.scenario import Scenario

Make = Callable[..., Iterator[Scenario]]

KINDS: dict[str, tuple[Make, int]] = {
    "urgency": (levels.make, 600),
    "tone": (levels.make, 550),
    "politeness": (levels.make, 300),
    "satisfaction": (levels.make, 350),
    "severity": (levels.make, 350),
    "routing": (classes.make, 700),
    "intent": (classes.make, 500),
    "language": (classes.make, 250),
    "spam": (classes.make, 200),
    "consent": (classes.make, 300),
    "mentions": (mentions.make, 450),
    "pii": (mentions.make, 400),
    "negation": (negation.make, 400),
    "missing": (absent.missing, 500),
    "address": (absent.address, 250),
    "refund": (policy.refund, 400),
    "approval": (policy.approval, 300),
    "amounts": (figures.amounts, 400),
    "dates": (figures.dates, 350),
    "tools": (structured.tools, 500),
    "records": (structured.records, 500),
    "rules": (rules.make, 400),
    "answers": (passages.answers, 1200),
    "harm": (passages.harm, 900),
}
