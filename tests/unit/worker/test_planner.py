import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ostraka_worker.planner import plan_calls

LENGTHS = st.lists(st.integers(1, 600), max_size=80)
BUDGETS = st.integers(1, 512)


@pytest.mark.parametrize(
    ("lengths", "budget", "calls"),
    [
        ([], 10, []),
        ([3], 10, [[0]]),
        ([300], 10, [[0]]),
        ([5, 5], 10, [[0, 1]]),
        ([5, 6], 10, [[0], [1]]),
        ([9, 1, 9, 1], 10, [[1, 3], [0], [2]]),
        ([10, 1], 10, [[1], [0]]),
        ([2, 10, 11, 2], 10, [[0, 3], [1], [2]]),
        ([1] * 5, 2, [[0, 1], [2, 3], [4]]),
    ],
)
def test_examples(lengths, budget, calls):
    assert plan_calls(lengths, budget) == calls


@given(LENGTHS, BUDGETS)
def test_every_prompt_is_in_exactly_one_call(lengths, budget):
    calls = plan_calls(lengths, budget)
    assert sorted(index for call in calls for index in call) == list(range(len(lengths)))
    assert all(calls)


@given(LENGTHS, BUDGETS)
def test_a_call_keeps_the_budget_unless_it_is_one_long_prompt(lengths, budget):
    for call in plan_calls(lengths, budget):
        assert len(call) == 1 or sum(lengths[index] for index in call) <= budget


@given(LENGTHS, BUDGETS)
def test_a_prompt_of_the_budget_or_more_is_alone(lengths, budget):
    for call in plan_calls(lengths, budget):
        assert len(call) == 1 or all(lengths[index] < budget for index in call)


@given(LENGTHS, BUDGETS)
def test_calls_go_from_short_to_long_and_equals_keep_their_order(lengths, budget):
    order = [index for call in plan_calls(lengths, budget) for index in call]
    assert order == sorted(range(len(lengths)), key=lambda index: (lengths[index], index))


@given(LENGTHS, BUDGETS)
def test_no_two_neighbouring_calls_could_have_been_one(lengths, budget):
    calls = plan_calls(lengths, budget)
    for call, following in itertools.pairwise(calls):
        assert sum(lengths[index] for index in call) + lengths[following[0]] > budget
