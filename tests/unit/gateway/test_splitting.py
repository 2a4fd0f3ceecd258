import pytest
from hypothesis import given
from hypothesis import strategies as st

from ostraka_gateway.splitting import Reader, Reading, cut, finish_s, plan_shares

IDLE = Reader(0.0, 1000.0)


def shares(prefix, rest, *readers, deadline_s=60.0, is_quiet=True):
    return plan_shares(Reading.of(prefix, rest), readers, deadline_s, is_quiet=is_quiet)


def test_many_prompts_on_a_short_state_are_shared_evenly():
    assert shares(100, 4000, IDLE, IDLE) == pytest.approx([0.5, 0.5])
    assert len(shares(100, 4000, *[IDLE] * 4)) == 4


@pytest.mark.parametrize(("prefix", "rest"), [(500, 80), (1000, 700), (50, 10)])
def test_few_prompts_are_not_worth_a_second_reading_of_the_state(prefix, rest):
    assert shares(prefix, rest, IDLE, IDLE) == [1.0]


def test_not_while_others_wait_for_the_time_it_would_cost():
    assert shares(100, 4000, IDLE, IDLE, is_quiet=False) == [1.0]


def test_unless_the_deadline_cannot_be_kept_otherwise():
    assert len(shares(1000, 1500, IDLE, IDLE, deadline_s=2.0, is_quiet=False)) == 2
    assert shares(1000, 1500, IDLE, IDLE, deadline_s=2.6, is_quiet=False) == [1.0]


def test_a_busy_or_slow_worker_gets_less():
    first, second = shares(0, 4000, IDLE, Reader(1.0, 1000.0))
    assert (first, second) == pytest.approx((0.625, 0.375))
    assert shares(0, 4000, IDLE, Reader(0.0, 250.0)) == pytest.approx([0.8, 0.2])


def test_one_that_would_be_done_later_than_all_gets_none():
    assert shares(0, 1000, IDLE, Reader(1.0, 1000.0)) == [1.0]


def test_nothing_is_planned_by_a_speed_nobody_knows():
    assert shares(100, 4000, Reader(0.0, 0.0), IDLE) == [1.0]
    assert shares(100, 4000, IDLE, Reader(0.0, 0.0)) == [1.0]


def test_what_lies_far_behind_the_beginning_counts_more():
    assert Reading.of(1024, 100) == Reading(1024, 100)
    assert Reading.of(4096, 100) == Reading(pytest.approx(1024 + 4778.7, abs=1), 200)


READERS = st.lists(st.builds(Reader, st.floats(0.0, 5.0), st.floats(10.0, 5000.0)), min_size=1, max_size=8)


@given(st.integers(0, 8000), st.integers(1, 100_000), READERS, st.floats(0.1, 60.0), st.booleans())
def test_shares_are_whole_and_never_make_it_later(prefix, rest, readers, deadline_s, is_quiet):
    readers.sort(key=lambda reader: reader.wait_s)
    reading = Reading.of(prefix, rest)
    found = plan_shares(reading, readers, deadline_s, is_quiet=is_quiet)
    assert sum(found) == pytest.approx(1.0)
    assert all(share >= 0.0 for share in found)
    assert finish_s(reading, readers[: len(found)]) <= finish_s(reading, readers[:1])


@given(st.lists(st.integers(0, 50), min_size=1, max_size=60), st.lists(st.floats(0.01, 1.0), min_size=1, max_size=6))
def test_each_prompt_is_in_one_group_and_neighbours_stay_together(added, weights):
    parts = [weight / sum(weights) for weight in weights]
    groups = cut(added, parts)
    assert [place for group in groups for place in group] == list(range(len(added)))
    assert all(groups)
    assert 1 <= len(groups) <= len(parts)


def test_groups_are_of_the_size_of_their_shares():
    assert [len(group) for group in cut([1] * 100, [0.25, 0.5, 0.25])] == [25, 50, 25]
