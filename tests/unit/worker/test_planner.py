import itertools
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ostraka_shared.reading_rules import LEAST_PREFIX_TOKENS
from ostraka_worker.planner import (
    JOINED_PAST_TOKENS,
    PIECE_TOKENS,
    Request,
    Step,
    is_resumed_as_it_is,
    plan_calls,
    plan_request,
    plan_resumed,
)
from tests.works import ids

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


TOKENS = st.lists(st.integers(0, 1), max_size=60)
REQUESTS = st.builds(
    lambda state, rest, suffixes, cached: Request(ids(state + rest), tuple(map(ids, suffixes)), len(state), cached),
    st.sampled_from([0, 10, 32, 100, 900]).map(lambda n: [5] * n),
    st.lists(st.integers(0, 1), max_size=200),
    st.lists(TOKENS.filter(len), min_size=1, max_size=8),
    st.just(0),
)


def flat(rounds):
    return [step for steps in rounds for step in steps]


@given(REQUESTS, st.integers(1, 600), st.floats(0.0, 1.0))
def test_every_prompt_is_answered_once_from_what_is_read(request, budget, share):
    cached = int(share * request.prefix_tokens)
    request = replace(request, cached=cached if cached >= LEAST_PREFIX_TOKENS else 0)
    filled = {None: request.cached}
    answered = []
    for steps in plan_request(request, budget):
        reached = {}
        for step in steps:
            assert (
                step.past == filled.get(step.owner, filled[None] if step.owner is not None else None) or not step.past
            )
            assert step.tokens > 0
            answered += [index for index, _ in step.prompts]
            if step.stop:
                assert step.tokens == step.stop - step.past <= PIECE_TOKENS
                reached[step.owner] = step.stop
        filled |= reached
    assert sorted(answered) == list(range(len(request.suffixes)))


@given(REQUESTS, st.integers(1, 600))
def test_a_step_keeps_the_budget_unless_it_is_a_piece_or_one_prompt(request, budget):
    for step in flat(plan_request(request, budget)):
        assert step.tokens <= PIECE_TOKENS or len(step.prompts) > 1
        assert len(step.prompts) <= 1 or step.tokens <= budget


def test_a_kept_state_is_resumed_as_it_lies_unless_much_follows_it():
    state = Request(ids([1] * 100), (b"\0" * 4,) * 2, 100)
    for request, is_resumed in (
        (replace(state, cached=100), True),
        (replace(state, cached=99), False),
        (replace(state, cached=0), False),
        (replace(state, prefix=ids([1] * 228), cached=100), True),
        (replace(state, prefix=ids([1] * 229), cached=100), False),
    ):
        assert is_resumed_as_it_is(request) is is_resumed


def step(tokens, past):
    return Step(past, tokens)


def test_short_memories_share_a_call_and_long_ones_do_not():
    assert plan_resumed([(step(20, 100), 1), (step(20, 100), 2), (step(20, 300), 3)], 256) == [[0, 1, 2]]
    assert plan_resumed([(step(20, 400), 1), (step(20, 400), 2)], 256) == [[0], [1]]
    assert plan_resumed([(step(20, 4000), 1), (step(20, 400), 2), (step(20, 3000), 1)], 256) == [[0, 2], [1]]


@given(st.lists(st.tuples(st.integers(1, 300), st.integers(1, 900), st.integers(0, 4)), max_size=30), BUDGETS)
def test_every_resumed_step_is_in_one_call_under_the_bounds(parts, budget):
    steps = [(step(tokens, past), memory) for tokens, past, memory in parts]
    calls = plan_resumed(steps, budget)
    assert sorted(index for call in calls for index in call) == list(range(len(steps)))
    for call in calls:
        assert len(call) == 1 or sum(steps[index][0].tokens for index in call) <= budget
        pasts = {}
        for index in call:
            pasts[steps[index][1]] = max(pasts.get(steps[index][1], 0), steps[index][0].past)
        assert len(pasts) == 1 or sum(pasts.values()) <= JOINED_PAST_TOKENS
