import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ostraka_gateway.cost import CostModel

SIZES = (20, 64, 128, 200, 256, 384, 900)


def true_s(tokens, call=0.012, token=0.0006, square=2e-7):
    return call + token * tokens + square * tokens * tokens


def fitted(observe, calls=200, seed=1):
    """`observe(rng, tokens)` gives a call's seconds."""
    model, rng = CostModel(), np.random.default_rng(seed)
    model.start(300.0)
    for _ in range(calls):
        tokens = int(rng.choice(SIZES))
        model.observe(tokens, observe(rng, tokens))
    return model


def test_before_the_first_call_the_workers_own_speed_is_what_is_known():
    model = CostModel()
    assert (model.call_s(100), model.speed(256)) == (0.0, 0.0)
    model.start(1000.0)
    assert model.speed(256) == pytest.approx(1000.0)
    assert model.calls == 0


def test_it_finds_the_terms_of_calls_without_noise():
    model = fitted(lambda _, tokens: true_s(tokens))
    for tokens in SIZES:
        assert model.call_s(tokens) == pytest.approx(true_s(tokens), rel=0.05)
    call, token, square = model.terms_s
    assert call == pytest.approx(0.012, rel=0.3)
    assert token == pytest.approx(0.0006, rel=0.15)
    assert square == pytest.approx(2e-7, rel=0.5)


def test_noise_is_averaged():
    model = fitted(lambda rng, tokens: true_s(tokens) * rng.lognormal(0.0, 0.15))
    for tokens in SIZES[2:]:
        assert model.call_s(tokens) == pytest.approx(true_s(tokens), rel=0.2)


def test_one_call_in_ten_disturbed_or_read_together_moves_little():
    model = fitted(
        lambda rng, t: true_s(t) * rng.lognormal(0.0, 0.05) * rng.choice([1.0, 20.0, 0.001], p=[0.9, 0.05, 0.05])
    )
    for tokens in SIZES[3:]:
        assert model.call_s(tokens) == pytest.approx(true_s(tokens), rel=0.35)


def test_a_machine_that_became_slower_is_soon_believed():
    model = fitted(lambda _, tokens: true_s(tokens))
    for _ in range(60):
        model.observe(256, 5 * true_s(256))
    assert model.call_s(256) == pytest.approx(5 * true_s(256), rel=0.1)


def test_calls_of_one_size_do_not_make_others_absurd():
    model = CostModel()
    model.start(1000.0)
    for _ in range(200):
        model.observe(256, 0.3)
    assert model.call_s(256) == pytest.approx(0.3, rel=0.02)
    assert 0.01 < model.call_s(32) < 0.2
    assert 0.5 < model.call_s(1000) < 4.0


@given(st.lists(st.tuples(st.integers(1, 5000), st.floats(1e-9, 1e4)), max_size=40), st.sampled_from([0.0, 1e-3, 1e7]))
@settings(max_examples=60)
def test_whatever_is_observed_no_term_is_negative_and_more_tokens_never_take_less(calls, warm):
    model = CostModel()
    model.start(warm)
    for tokens, seconds in calls:
        model.observe(tokens, seconds)
    assert all(term >= 0.0 for term in model.terms_s)
    assert 0.0 <= model.call_s(10) <= model.call_s(300) <= model.call_s(5000) < float("inf")


def test_what_took_no_time_or_read_nothing_says_nothing():
    model = CostModel()
    model.start(1000.0)
    for tokens, seconds in ((0, 1.0), (10, 0.0)):
        model.observe(tokens, seconds)
    assert model.calls == 0
