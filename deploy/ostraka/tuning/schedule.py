"""How fast a tuning learns when, when it looks at what is held out, and when it ends. Pure: told of time."""

from dataclasses import dataclass, field
from math import cos, inf, pi

WARM_STEPS = 60
WARM_SHARE = 0.03
LEAST_RATE = 0.04
"""Of the learning rate, at the end."""
MOST_STEPS_BETWEEN = 200
PATIENCE = 6
"""Looks without a gain, three epochs of a small file, until a tuning is over."""
LEAST_GAIN = 0.0005
"""Of the held-out loss, which is about 0.6; less is noise."""


@dataclass(frozen=True, slots=True)
class Limits:
    """A tuning ends at the first that is reached. At least one is given; `examples` are those of an epoch."""

    examples: int
    epochs: float | None = None
    minutes: float | None = None

    def share(self, examples_seen: int, elapsed_s: float) -> float:
        """How much of the way is gone: 1 at the end."""
        by_epochs = examples_seen / (self.epochs * self.examples) if self.epochs else 0.0
        by_time = elapsed_s / (self.minutes * 60) if self.minutes else 0.0
        return max(by_epochs, by_time)


def rate_factor(step: int, share: float) -> float:
    """Of the learning rate: up in WARM_STEPS steps or WARM_SHARE of the way, then down as a cosine falls."""
    warm = min(1.0, max((step + 1) / WARM_STEPS, share / WARM_SHARE))
    return warm * (LEAST_RATE + (1 - LEAST_RATE) * (1 + cos(pi * min(share, 1.0))) / 2)


def steps_between(batches: int) -> int:
    """From one look at the held-out examples to the next: twice an epoch, or more often where epochs are long."""
    return max(1, min(MOST_STEPS_BETWEEN, batches // 2))


@dataclass(slots=True)
class EarlyStopping:
    """Told of each held-out loss, the start's first: it may be better than all that comes after."""

    best: float = field(default=inf)
    looks_since: int = 0

    def look(self, loss: float) -> bool:
        """Whether it is the lowest so far; a gain below LEAST_GAIN is kept, and still counts as none."""
        self.looks_since = 0 if loss < self.best - LEAST_GAIN else self.looks_since + 1
        if not loss < self.best:  # NaN is no gain
            return False
        self.best = loss
        return True

    @property
    def is_over(self) -> bool:
        return self.looks_since >= PATIENCE
