"""The loss of answers, and the temperature that makes it least: in numpy, over margins (the logit of yes less no's).

For each example the mean binary cross-entropy of its prompts. A choice is decided by comparing its options, so it has
0.75 of that, and half the cross-entropy of its probabilities as they are served: P(yes) of an option over their sum.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Margins = npt.NDArray[np.float64]

BINARY_OF_CHOICE = 0.75
COMPARED_OF_CHOICE = 0.5
"""Parts of a choice's loss: of the cross-entropy of each prompt's answer, and of that of the options compared."""
COLDEST, HOTTEST = 0.5, 10.0
"""Where all that is held out is answered rightly, the colder the better: that says little of other questions."""
_GOLDEN = (5**0.5 - 1) / 2
_SEARCH_STEPS = 40
"""Each leaves 0.618 of the interval: together they find the temperature to 1e-8."""


@dataclass(frozen=True, slots=True)
class Asked:
    """Prompts in any number of batches: `targets` and `owners` are of prompts, `is_choice` is of examples."""

    targets: Margins
    owners: npt.NDArray[np.int64]
    is_choice: npt.NDArray[np.bool_]


def mean_loss(margins: Margins, asked: Asked) -> float:
    count = len(asked.is_choice)
    binary = np.logaddexp(0, margins) - asked.targets * margins
    of_prompts = np.bincount(asked.owners, binary, count) / np.bincount(asked.owners, minlength=count)
    log_p = -np.logaddexp(0, -margins)
    total = np.bincount(asked.owners, np.exp(log_p), count)
    right = np.bincount(asked.owners, log_p * asked.targets, count)
    compared = np.log(np.maximum(total, np.finfo(np.float64).tiny)) - right
    of_choices = BINARY_OF_CHOICE * of_prompts + COMPARED_OF_CHOICE * compared
    return float(np.where(asked.is_choice, of_choices, of_prompts).mean())


def fit_temperature(margins: Margins, asked: Asked) -> float:
    """What to divide margins by. Golden section over its logarithm, from COLDEST to HOTTEST."""
    low, high = np.log(COLDEST), np.log(HOTTEST)
    for _ in range(_SEARCH_STEPS):
        left, right = high - _GOLDEN * (high - low), low + _GOLDEN * (high - low)
        if mean_loss(margins / np.exp(left), asked) <= mean_loss(margins / np.exp(right), asked):
            high = right
        else:
            low = left
    return float(np.exp((low + high) / 2))
