import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ostraka_gateway.rate_limit import RateLimit
from ostraka_shared.errors import RateLimited


def wait_of(take, *args):
    """Seconds to wait; 0 where it was taken."""
    try:
        take(*args)
    except RateLimited as bad:
        return bad.retry_after_s
    return 0.0


def test_a_look_takes_nothing():
    limit = RateLimit(0, 10)
    for _ in range(100):
        limit.check_tokens("a", 0.0)
    limit.take_tokens("a", 15, 0.0)
    assert wait_of(limit.check_tokens, "a", 0.0) == wait_of(limit.take_tokens, "a", 1, 0.0) == pytest.approx(0.6)


def test_nothing_is_limited_by_default():
    limit = RateLimit(0, 0)
    for _ in range(10_000):
        limit.take_request(None, 0.0)
        limit.take_tokens(None, 10**9, 0.0)


def test_a_minute_s_requests_may_come_at_once_and_no_more():
    limit = RateLimit(3, 0)
    for _ in range(3):
        limit.take_request("a", 100.0)
    with pytest.raises(RateLimited, match="more than 3 requests a minute: try again in 20000 ms") as caught:
        limit.take_request("a", 100.0)
    assert caught.value.retry_after_s == pytest.approx(20.0)
    assert wait_of(limit.take_request, "a", 110.0) == pytest.approx(10.0)
    limit.take_request("a", 120.0)
    assert wait_of(limit.take_request, "a", 120.0) == pytest.approx(20.0)


def test_what_is_not_used_is_saved_for_a_minute_only():
    limit = RateLimit(3, 0)
    limit.take_request("a", 0.0)
    assert [wait_of(limit.take_request, "a", 1e6) for _ in range(4)] == [0, 0, 0, pytest.approx(20.0)]


def test_keys_do_not_share():
    limit = RateLimit(1, 5)
    for key in ("a", "b", None):
        limit.take_request(key, 0.0)
        limit.take_tokens(key, 100, 0.0)
    for key in ("a", "b", None):
        assert wait_of(limit.take_request, key, 0.0)
        assert wait_of(limit.take_tokens, key, 1, 0.0)


def test_tokens_are_taken_on_credit_which_those_that_follow_wait_for():
    limit = RateLimit(0, 100)
    limit.take_tokens("a", 60, 0.0)
    limit.take_tokens("a", 540, 0.0)  # of 40 that are left
    with pytest.raises(RateLimited, match="more than 100 tokens a second") as caught:
        limit.take_tokens("a", 1, 0.0)
    assert caught.value.retry_after_s == pytest.approx(5.01)
    assert wait_of(limit.take_tokens, "a", 1, 4.0) == pytest.approx(1.01)
    limit.take_tokens("a", 1, 5.02)


def test_a_refusal_takes_nothing():
    limit = RateLimit(1, 1)
    limit.take_request("a", 0.0)
    limit.take_tokens("a", 1, 0.0)
    for _ in range(1000):
        assert wait_of(limit.take_request, "a", 0.0) == pytest.approx(60.0)
        assert wait_of(limit.take_tokens, "a", 1, 0.0) == pytest.approx(1.0)


def test_a_clock_that_stands_or_goes_back_gives_nothing():
    limit = RateLimit(1, 0)
    limit.take_request("a", 100.0)
    assert wait_of(limit.take_request, "a", 0.0) == pytest.approx(60.0)


@given(st.integers(1, 2000), st.lists(st.floats(0, 30), min_size=1, max_size=200))
def test_the_wait_is_true_and_the_rate_is_kept(per_min, gaps):
    limit, now = RateLimit(per_min, 0), 0.0
    for taken, gap in enumerate(gaps, 1):
        now += gap
        if wait_s := wait_of(limit.take_request, "a", now):
            now = math.nextafter(now + wait_s + 1e-6, math.inf)
            assert not wait_of(limit.take_request, "a", now)
        assert taken <= per_min * (1 + now / 60) + 1e-3


@given(st.integers(1, 10_000), st.lists(st.tuples(st.floats(0, 5), st.integers(1, 20_000)), min_size=1, max_size=100))
def test_the_tokens_given_never_exceed_the_rate_by_more_than_one_request(per_s, asked):
    limit, now, taken = RateLimit(0, per_s), 0.0, 0
    for gap, tokens in asked:
        now += gap
        if wait_s := wait_of(limit.take_tokens, "a", tokens, now):
            now += wait_s + 1e-6
            assert not wait_of(limit.take_tokens, "a", tokens, now)
        assert taken <= per_s * (1 + now) + 1e-3
        taken += tokens


@given(st.lists(st.tuples(st.integers(0, 2), st.floats(0, 40)), min_size=1, max_size=200), st.integers(1, 30))
def test_three_gateways_together_let_no_more_pass_than_the_limit(asked, per_min):
    """But for a first request each, where the limit is too small to be shared."""
    limits, now, passed = [RateLimit(per_min, 0, 3) for _ in range(3)], 0.0, 0
    for gateway, after_s in asked:
        now += after_s
        passed += not wait_of(limits[gateway].take_request, "a", now)
    assert passed <= max(per_min, 3) + per_min * now / 60 + 1e-6


def test_a_gateway_s_share_is_said_where_it_is_not_the_whole():
    limit = RateLimit(3, 10, 2)
    limit.take_request("a", 0.0)
    with pytest.raises(
        RateLimited, match=r"more than 1\.5 requests a minute at one of 2 gateways: try again in 20000 ms"
    ):
        limit.take_request("a", 0.0)
    limit.take_tokens("a", 6, 0.0)
    with pytest.raises(RateLimited, match="more than 5 tokens a second at one of 2 gateways"):
        limit.take_tokens("a", 1, 0.0)


def test_a_share_of_less_than_a_request_is_one_more_rarely():
    limit = RateLimit(1, 0, 4)
    assert wait_of(limit.take_request, None, 0.0) == 0
    assert wait_of(limit.take_request, None, 0.0) == pytest.approx(240.0)
