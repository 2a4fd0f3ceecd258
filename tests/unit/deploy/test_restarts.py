import pytest
from hypothesis import given
from hypothesis import strategies as st

from ostraka.restarts import CRASH_LIMIT_AT_START, FIRST_DELAY_S, MAX_DELAY_S, STABLE_S, RestartPolicy
from ostraka_gateway.config import DEFAULT_DEADLINE_MS


def delays(policy, uptimes, *, has_been_ready=True):
    return [policy.next_delay_s(uptime, has_been_ready=has_been_ready) for uptime in uptimes]


def test_delays_double_to_a_bound_and_what_has_served_is_never_given_up():
    found = delays(RestartPolicy(lambda: 1.0), [0.0] * 2000)
    assert found[:5] == pytest.approx([0.0, *(FIRST_DELAY_S * 2**n for n in range(4))])
    assert set(found[5:]) == {MAX_DELAY_S}


def test_even_workers_that_die_together_again_and_again_are_back_well_within_the_default_deadline():
    assert MAX_DELAY_S <= DEFAULT_DEADLINE_MS / 1000 / 4


def test_a_long_life_is_a_fresh_start():
    policy = RestartPolicy(lambda: 1.0)
    found = delays(policy, [0.0, 0.0, STABLE_S, STABLE_S - 0.01])
    assert found == pytest.approx([0.0, 0.1, 0.0, 0.1])


def test_before_the_cluster_was_ready_a_second_death_is_the_last():
    found = delays(RestartPolicy(lambda: 1.0), [0.0] * CRASH_LIMIT_AT_START, has_been_ready=False)
    assert found[-1] is None
    assert None not in found[:-1]


def test_nor_is_it_a_fresh_start_that_a_model_took_long_to_load_before_it_could_not():
    assert delays(RestartPolicy(lambda: 1.0), [STABLE_S] * CRASH_LIMIT_AT_START, has_been_ready=False)[-1] is None


def test_what_nobody_waits_for_may_wait_for_longer():
    assert delays(RestartPolicy(lambda: 1.0, most_delay_s=30.0), [0.0] * 20)[-1] == 30.0


def test_jitter_spreads_over_half_the_delay():
    assert delays(RestartPolicy(lambda: 0.0), [0.0, 0.0]) == pytest.approx([0.0, 0.05])
    assert delays(RestartPolicy(lambda: 0.5), [0.0, 0.0]) == pytest.approx([0.0, 0.075])


@given(st.lists(st.tuples(st.floats(0.0, 100.0), st.booleans()), max_size=40), st.floats(0.0, 1.0))
def test_a_delay_is_short_and_giving_up_needs_quick_deaths_in_a_row(deaths, jitter):
    policy = RestartPolicy(lambda: jitter)
    quick = 0
    for uptime, has_been_ready in deaths:
        quick = 1 if uptime >= STABLE_S and has_been_ready else quick + 1
        delay_s = policy.next_delay_s(uptime, has_been_ready=has_been_ready)
        if delay_s is None:
            assert not has_been_ready
            assert quick >= CRASH_LIMIT_AT_START
        else:
            assert delay_s == 0.0 if quick == 1 else FIRST_DELAY_S / 2 <= delay_s <= MAX_DELAY_S
            assert has_been_ready or quick < CRASH_LIMIT_AT_START
