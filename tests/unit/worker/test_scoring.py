import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ostraka_shared.errors import EngineFailed
from ostraka_worker.scoring import MAX_EXPONENT, p_yes

LOGIT = st.floats(width=32, allow_nan=False, allow_infinity=False)


def of(no, yes):
    return p_yes(np.array([[no, yes]], np.float32))[0]


@pytest.mark.parametrize(
    ("no", "yes", "p"),
    [
        (0.0, 0.0, 0.5),
        (7.25, 7.25, 0.5),
        (0.0, 1.0, 0.7310585786300049),
        (1.0, 0.0, 0.2689414213699951),
        (-20.0, 20.0, 1.0),
        (20.0, -20.0, 4.248354255291589e-18),
        (709.0, 0.0, 1.216780750623423e-308),
        (710.0, 0.0, 0.0),
        (3e38, -3e38, 0.0),
        (-3e38, 3e38, 1.0),
    ],
)
def test_examples(no, yes, p):
    assert of(no, yes) == pytest.approx(p, rel=1e-15, abs=0)


@given(LOGIT, LOGIT)
def test_it_is_a_probability_whatever_the_logits(no, yes):
    p = of(no, yes)
    assert type(p) is float
    assert 0.0 <= p <= 1.0
    assert (p > 0.5) <= (yes > no) <= (p >= 0.5)


@given(LOGIT, LOGIT)
def test_yes_and_no_add_up_to_one(no, yes):
    assert of(no, yes) + of(yes, no) == pytest.approx(1.0, abs=1e-15)


@given(st.floats(-700, 700, width=32), st.floats(-700, 700, width=32))
def test_a_greater_difference_is_never_a_smaller_probability(one, other):
    assert (of(0.0, one) <= of(0.0, other)) or one > other


@given(st.lists(st.tuples(LOGIT, LOGIT), max_size=6))
def test_each_row_is_scored_as_if_alone(rows):
    assert p_yes(np.array(rows, np.float32).reshape(-1, 2)) == [of(no, yes) for no, yes in rows]


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("place", [(0, 0), (0, 1), (1, 0), (2, 1)])
def test_a_logit_that_is_no_number_is_a_failure_of_the_call(bad, place):
    logits = np.zeros((3, 2), np.float32)
    logits[place] = bad
    with pytest.raises(EngineFailed):
        p_yes(logits)


def test_the_limit_of_exp_is_as_said():
    math.exp(MAX_EXPONENT)
    with pytest.raises(OverflowError):
        math.exp(MAX_EXPONENT + 1)
