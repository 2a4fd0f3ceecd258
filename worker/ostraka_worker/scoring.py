"""Logits to P(yes)."""

import math

import numpy as np
import numpy.typing as npt

from ostraka_shared.errors import EngineFailed

MAX_EXPONENT = 709.0
"""math.exp overflows a double just above; the probability is below 1e-307 there."""


def p_yes(logits: npt.NDArray[np.float32]) -> list[float]:
    """[n, 2] logits (no, yes) -> n probabilities: 1 / (1 + exp(no - yes)), in double from float32.

    Raises EngineFailed where a logit is not finite: a wrong answer is worse than none.
    """
    if not np.isfinite(logits).all():
        raise EngineFailed("the model returned a logit that is not a number")
    return [_sigmoid(float(no) - float(yes)) for no, yes in logits]


def _sigmoid(no_minus_yes: float) -> float:
    return 0.0 if no_minus_yes > MAX_EXPONENT else 1.0 / (1.0 + math.exp(no_minus_yes))
