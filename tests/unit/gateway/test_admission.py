import pytest
from hypothesis import given
from hypothesis import strategies as st

from ostraka_gateway.admission import HOPELESS, LEAST_RETRY_S, MAX_RETRY_S, Demand, Load, admit, refusal_of_all
from ostraka_shared.errors import DeadlineExceeded, NoWorkerReady, Overloaded

LIMIT = 10_000


def load(queued=0, rate=1000.0, *, held=0, fastest=None, expects_worker=True):
    return Load(queued, held, rate, rate if fastest is None else fastest, expects_worker)


def ask(tokens, deadline_s, now, least=None, *, can_split=False):
    admit(Demand(tokens, tokens if least is None else least, deadline_s, can_split), now, LIMIT)


def refused(error, *args, **options):
    with pytest.raises(error) as found:
        ask(*args, **options)
    return found.value.retry_after_s


def test_nobody_is_expected():
    assert refused(NoWorkerReady, 1, 9.0, load(expects_worker=False)) > 0


def test_an_empty_queue_takes_what_can_be_answered_in_time():
    ask(10 * LIMIT, 100.0, load())
    ask(500, 0.5, load())


def test_what_cannot_be_in_time_even_alone_is_told_so_at_once_and_not_to_try_again():
    assert refused(DeadlineExceeded, 20_001, 10.0, load()) is None
    ask(20_000, 10.0, load(rate=0.0))  # nobody knows


def test_a_kept_state_and_all_workers_together_are_the_best_case():
    ask(100_000, 10.0, load(), least=9_000)
    ask(40_000, 10.0, load(rate=4000.0, fastest=1000.0), can_split=True)
    refused(DeadlineExceeded, 40_000, 10.0, load(rate=4000.0, fastest=1000.0))


def test_a_wait_longer_than_the_deadline_is_refused_until_it_is_shorter():
    """With the caution that a prediction asks for."""
    ask(1, 9.0, load(7_400))
    assert refused(Overloaded, 1, 9.0, load(9_500)) == pytest.approx(1.2 * 9.5 - 9 + 0.001)
    assert refused(Overloaded, 1, 9.0, load(9_000, held=600)) == pytest.approx(1.2 * 9.6 - 9 + 0.001)
    assert refused(Overloaded, 900, 9.0, load(8_000)) == pytest.approx(1.2 * 8 + 0.9 - 9), "its own time counts"
    crowded = Load(8_000, 0, 1000.0, 1000.0, expects_worker=True, call_s=0.5)
    assert refused(Overloaded, 1, 9.0, crowded) == pytest.approx(1.2 * 8 + 0.5 - 9), "it will share a call with others"
    warned = Load(6_000, 0, 1000.0, 1000.0, expects_worker=True, caution=1.8)
    assert refused(Overloaded, 1, 9.0, warned) == pytest.approx(1.8 * 6 + 0.001 - 9), "others were late"


def test_what_workers_hold_counts_though_nothing_waits():
    refused(Overloaded, 1, 0.1, load(held=512))
    ask(1, 0.7, load(held=512))


def test_who_passes_a_queue_of_longer_ones_waits_for_its_turns_alone():
    passing = Load(8_500, 0, 1000.0, 1000.0, expects_worker=True, passed_tokens=8_000, turns=2)
    ask(100, 1.4, passing)
    assert refused(Overloaded, 100, 1.0, passing) == pytest.approx(1.2 * 1.0 + 0.1 - 1)


def test_a_refusal_names_the_time_it_was_refused_for():
    with pytest.raises(
        Overloaded, match=r"^8\.0 s of work are ahead: an answer may take 9\.7 s, and the deadline is 9\.0"
    ):
        ask(100, 9.0, load(8_000))


def test_a_short_time_is_told_in_milliseconds():
    """It said "0.0 s"; of what is left of a millisecond it must not say "0 ms", which nobody can ask for."""
    for deadline_s, told in ((0.004, "4 ms"), (0.0003, "1 ms")):
        with pytest.raises(DeadlineExceeded, match=f"takes 100 ms at best and the deadline is {told}"):
            ask(100, deadline_s, load(0))


def test_the_queue_may_be_filled_to_the_last_token():
    ask(400, 99.0, load(9_600))
    assert refused(Overloaded, 901, 99.0, load(9_600)) == pytest.approx(0.501)


def test_before_anything_was_measured_only_the_limit_counts():
    ask(1, 0.001, load(9_000, rate=0.0))
    assert refused(Overloaded, 1, 9.0, load(LIMIT, rate=0.0)) == LEAST_RETRY_S


def test_all_are_refused_until_the_first_of_them_is_let_in():
    short, long = load(9_000), load(9_500)
    assert refusal_of_all(9.0, [short, long], LIMIT).retry_after_s == pytest.approx(1.2 * 9.0 - 9)
    assert refusal_of_all(9.0, [long, short], LIMIT).retry_after_s == pytest.approx(1.2 * 9.0 - 9)
    assert refusal_of_all(9.0, [load(LIMIT, rate=0.0)], LIMIT).retry_after_s == LEAST_RETRY_S


def test_as_long_as_one_size_may_be_let_in_somebody_must_look():
    assert refusal_of_all(9.0, [load(9_000), load(7_400)], LIMIT) is None
    assert refusal_of_all(9.0, [load(7_400), load(9_000)], LIMIT) is None
    assert refusal_of_all(9.0, [load(9_000, expects_worker=False)], LIMIT) is None, "that is another refusal"
    assert refusal_of_all(9.0, [load(0, rate=0.0)], LIMIT) is None


RATES = st.just(0.0) | st.floats(0.1, 1e6)
LOADS = st.builds(
    Load,
    st.integers(0, 2 * LIMIT),
    st.integers(0, 10**4),
    RATES,
    RATES,
    st.just(True),
    st.floats(0.0, 2.0),
    st.just(0),
    st.integers(1, 4),
)


@given(st.lists(LOADS, min_size=1, max_size=4), st.data(), st.floats(0.001, 60.0))
def test_where_all_are_refused_each_is(loads, data, deadline_s):
    if refusal_of_all(deadline_s, loads, LIMIT) is None:
        return
    tokens = data.draw(st.integers(1, 10**6))
    demand = Demand(tokens, data.draw(st.integers(1, tokens)), deadline_s, data.draw(st.booleans()))
    with pytest.raises((Overloaded, DeadlineExceeded)):
        admit(demand, data.draw(st.sampled_from(loads)), LIMIT)


@given(
    st.integers(1, 10**7),
    st.floats(0.001, 600.0),
    st.builds(Load, st.integers(0, 10**7), st.integers(0, 10**4), RATES, RATES, st.booleans()),
    st.booleans(),
)
def test_what_is_let_in_fits_and_a_refusal_is_lifted_when_it_says(tokens, deadline_s, now, can_split):
    demand = Demand(tokens, tokens, deadline_s, can_split)
    try:
        admit(demand, now, LIMIT)
    except (NoWorkerReady, Overloaded) as refusal:
        retry_s = refusal.retry_after_s
        assert LEAST_RETRY_S <= retry_s <= MAX_RETRY_S
        if isinstance(refusal, Overloaded) and retry_s < MAX_RETRY_S and now.tokens_per_s:
            left = now.queued_tokens + now.held_tokens - int(retry_s * now.tokens_per_s) - 1
            waits = Load(max(0, left), 0, now.tokens_per_s, now.fastest_tokens_per_s, expects_worker=True)
            if demand.best_s(now) <= deadline_s:
                admit(demand, waits, max(LIMIT, tokens + waits.queued_tokens))
    except DeadlineExceeded:
        assert demand.best_s(now) > HOPELESS * deadline_s
    else:
        assert now.expects_worker
        assert not now.queued_tokens or now.queued_tokens + tokens <= LIMIT
        assert not now.tokens_per_s or now.queued_tokens / now.tokens_per_s <= deadline_s
