import pytest
from hypothesis import given
from hypothesis import strategies as st

from ostraka_gateway.admission import MAX_RETRY_S, Load, admit
from ostraka_shared.errors import NoWorkerReady, Overloaded

LIMIT = 10_000


def load(queued=0, rate=1000.0, *, expects_worker=True):
    return Load(queued, rate, expects_worker)


def test_nobody_is_expected():
    with pytest.raises(NoWorkerReady) as refused:
        admit(1, 9.0, load(expects_worker=False), LIMIT)
    assert refused.value.retry_after_s > 0


@pytest.mark.parametrize("tokens", [1, LIMIT, 100 * LIMIT])
def test_an_empty_queue_takes_any_request(tokens):
    admit(tokens, 0.001, load(0), LIMIT)


def test_the_queue_may_be_filled_to_the_last_token():
    admit(400, 99.0, load(9_600), LIMIT)
    with pytest.raises(Overloaded):
        admit(401, 99.0, load(9_600), LIMIT)


def test_a_queue_longer_than_the_deadline_is_refused_at_once():
    admit(1, 9.0, load(9_000), LIMIT)
    with pytest.raises(Overloaded, match=r"9\.1 s long and the deadline 9\.0 s") as refused:
        admit(1, 9.0, load(9_100), LIMIT)
    assert refused.value.retry_after_s == pytest.approx(4.55)


def test_before_anything_was_measured_only_the_limit_counts():
    admit(1, 0.001, load(9_000, rate=0.0), LIMIT)
    with pytest.raises(Overloaded) as refused:
        admit(1, 9.0, load(LIMIT, rate=0.0), LIMIT)
    assert refused.value.retry_after_s == pytest.approx(0.1)


def test_faster_workers_let_more_in():
    with pytest.raises(Overloaded):
        admit(1, 1.0, load(5_000, rate=4_000.0), LIMIT)
    admit(1, 1.0, load(5_000, rate=5_000.0), LIMIT)


@given(
    st.integers(1, 10**7),
    st.floats(0.001, 600.0),
    st.builds(Load, st.integers(0, 10**7), st.just(0.0) | st.floats(0.1, 1e6), st.booleans()),
    st.integers(1, 10**7),
)
def test_what_is_let_in_fits_and_a_refusal_says_when_to_return(tokens, deadline_s, now, limit):
    try:
        admit(tokens, deadline_s, now, limit)
    except (NoWorkerReady, Overloaded) as refused:
        retry_s = refused.retry_after_s
        assert 0.1 <= retry_s <= MAX_RETRY_S
    else:
        assert now.expects_worker
        assert not now.queued_tokens or now.queued_tokens + tokens <= limit
        assert not now.tokens_per_s or now.queued_tokens / now.tokens_per_s <= deadline_s
