import pytest
from hypothesis import given
from hypothesis import strategies as st

from ostraka_shared.errors import EngineFailed
from ostraka_shared.reading_rules import LEAST_PREFIX_TOKENS
from ostraka_worker.fake_engine import FakeEngine
from ostraka_worker.inference import BatchRun, places
from ostraka_worker.snapshots import Snapshots
from tests.works import expected, whole_prompts
from tests.works import make_work as work

FAIL, NAN = 900, 901
PLAN = {"fail_on_token": FAIL, "nan_on_token": NAN}
IDS = st.lists(st.integers(0, 800), max_size=8)
WORKS = st.lists(st.tuples(IDS, st.lists(IDS.filter(len), min_size=1, max_size=4)), min_size=1, max_size=6)


class CountingEngine(FakeEngine):
    def __init__(self, plan=PLAN):
        super().__init__(plan)
        self.calls = []

    def run(self, prompts):
        self.calls.append(len(prompts))
        return super().run(prompts)


def run(works, budget=64, engine=None, snapshots=None):
    batch = BatchRun(works, budget, snapshots)
    for call in batch.calls:
        batch.run(engine or CountingEngine(), call)
    return batch


@given(WORKS, st.integers(1, 40))
def test_answers_are_those_of_each_prompt_alone_in_order(parts, budget):
    works = [work(*each, name=str(n)) for n, each in enumerate(parts)]
    batch = run(works, budget)
    assert batch.failures == {}
    assert batch.answers() == [expected(each) for each in works]


@given(WORKS, st.integers(1, 40), st.data())
def test_what_fails_fails_alone(parts, budget, data):
    """Any of the requests may hold, at any place of any prompt, a token that fails its call or makes it NaN."""
    bad = data.draw(st.sets(st.integers(0, len(parts) - 1)))
    works = []
    for place, (prefix, suffixes) in enumerate(parts):
        if place in bad:
            victim = data.draw(st.integers(0, len(suffixes) - 1))
            suffixes[victim] = [*suffixes[victim], data.draw(st.sampled_from([FAIL, NAN]))]
        works.append(work(prefix, suffixes, name=str(place)))
    batch = run(works, budget)
    assert set(batch.failures) == bad
    answers = batch.answers()
    for place in set(range(len(works))) - bad:
        assert answers[place] == expected(works[place])


@given(WORKS, st.integers(1, 40))
def test_calls_account_for_every_token_and_request(parts, budget):
    works = [work(*each, name=f"r{n}") for n, each in enumerate(parts)]
    batch = BatchRun(works, budget)
    read = sum(len(tokens) for each in works for tokens in whole_prompts(each))  # no prefix is worth sharing here
    assert sum(batch.tokens(call) for call in batch.calls) == read
    assert {place for call in batch.calls for place in places(call)} == set(range(len(works)))
    for call in batch.calls:
        assert len(set(places(call))) == len(places(call))


def test_two_attempts_at_one_request_are_kept_apart():
    works = [work([1], [[FAIL]]), work([1], [[2]])]
    batch = run(works)
    assert set(batch.failures) == {0}
    assert batch.answers()[1] == expected(works[1])


def test_a_failing_call_is_repeated_once_for_each_of_its_requests():
    engine = CountingEngine()
    run([work([], [[1], [2]], "a"), work([], [[FAIL]], "b"), work([], [[3]], "c")], engine=engine)
    assert engine.calls == [4, 2, 1, 1]


def test_a_request_alone_is_not_repeated():
    engine = CountingEngine()
    batch = run([work([], [[1], [FAIL], [2]])], engine=engine)
    assert engine.calls == [3]
    assert "RuntimeError" in str(batch.failures[0])


def test_one_failing_call_of_many_fails_its_request_whole():
    batch = run([work([], [[1], [FAIL, 2], [3, 4, 5]])], budget=1)
    assert len(batch.calls) == 3
    assert set(batch.failures) == {0}


def test_the_message_of_a_failure_does_not_quote_the_runtime():
    """What a runtime says may hold paths or prompts: it is for the log."""

    class Leaky(FakeEngine):
        def run(self, _):
            raise ValueError("secret of another request")

    failure = run([work([], [[1]])], engine=Leaky({})).failures[0]
    assert isinstance(failure, EngineFailed)
    assert str(failure) == "the model call failed (ValueError)"


@pytest.mark.parametrize("stop", [KeyboardInterrupt, SystemExit])
def test_the_end_of_the_process_is_no_failure_of_a_call(stop):
    class Stopped(FakeEngine):
        def run(self, _):
            raise stop

    with pytest.raises(stop):
        run([work([], [[1]])], engine=Stopped({}))


@pytest.mark.parametrize(
    "bad", [MemoryError(), RuntimeError("std::bad_alloc"), RuntimeError("Failed to allocate memory for 8 bytes")]
)
def test_a_worker_out_of_memory_blames_no_request(bad):
    class Starved(FakeEngine):
        def run(self, _):
            raise bad

    with pytest.raises(type(bad)):
        run([work([], [[1]])], engine=Starved({}))


def test_a_request_without_prompts_has_no_answers():
    batch = run([work([1], []), work([], [[1]])])
    assert batch.answers()[0] == ()


STATE = st.integers(0, 3).flatmap(lambda kind: st.sampled_from([0, 31, 32, 40, 70, 500]).map(lambda n: (kind, n)))
"""States of few kinds, so that one often begins as another does."""
SHORT = st.lists(st.integers(1, 3), min_size=1, max_size=25)
SHARING = st.tuples(STATE, st.lists(st.integers(1, 2), max_size=20), st.lists(SHORT, min_size=1, max_size=6))


def sharing_work(name, parts):
    (kind, tokens), body, endings = parts
    state = [7] * (tokens - tokens // 3) + [kind] * (tokens // 3)
    return work([*state, *body], endings, str(name), len(state))


@given(st.lists(SHARING, min_size=1, max_size=8), st.integers(1, 300), st.integers(0, 3), st.integers(1, 4), st.data())
def test_kept_shared_and_cut_prompts_are_answered_as_whole_ones(parts, budget, most, batches, data):
    """The fake engine's memory is the tokens themselves: one wrong row, and the answer is wrong."""
    works = [sharing_work(name, each) for name, each in enumerate(parts)]
    snapshots = Snapshots(most, data.draw(st.sampled_from([0, 64, 600, 5000])))
    for _ in range(batches):
        chosen = data.draw(st.lists(st.sampled_from(works), min_size=1, max_size=6))
        batch = run(chosen, budget, snapshots=snapshots)
        assert batch.failures == {}
        assert batch.answers() == [expected(each) for each in chosen]


@given(st.lists(SHARING, min_size=2, max_size=6), st.integers(1, 300), st.data())
def test_what_fails_fails_alone_among_kept_states_too(parts, budget, data):
    works = [sharing_work(name, each) for name, each in enumerate(parts)]
    bad = data.draw(st.integers(0, len(works) - 1))
    (kind, tokens), body, endings = parts[bad]
    works[bad] = sharing_work(bad, ((kind, tokens), [*body, FAIL], endings))
    snapshots = Snapshots(8, 10_000)
    for _ in range(2):
        batch = run(works, budget, snapshots=snapshots)
        assert set(batch.failures) == {bad}
        answers = batch.answers()
        assert [answers[n] for n in range(len(works)) if n != bad] == [
            expected(each) for n, each in enumerate(works) if n != bad
        ]


def test_a_kept_state_is_not_read_again():
    engine, snapshots = CountingEngine(), Snapshots(4, 1000)
    engine.read = []
    state = list(range(1, 101))
    for first, second, read in (([200], [201], 102), ([202], [203, 204], 3), ([205], [206], 2)):
        batch = run([work(state, [first, second], state=100)], 256, engine, snapshots)
        assert sum(batch.tokens(call) for call in batch.calls) == read
    assert snapshots.counts.hits == 2
    assert snapshots.counts.reused_tokens == 200


def test_a_lone_question_keeps_its_state_in_one_call():
    engine, snapshots = CountingEngine(), Snapshots(4, 1000)
    state = list(range(1, 101))
    assert len(run([work(state, [[200, 201]], state=100)], 256, engine, snapshots).calls) == 1
    batch = run([work(state, [[202]], state=100)], 256, engine, snapshots)
    assert [batch.tokens(call) for call in batch.calls] == [1]


def test_of_a_state_that_goes_on_only_the_rest_is_read():
    snapshots = Snapshots(4, 1000)
    state = list(range(1, 101))
    run([work(state, [[200]], state=100)], 256, None, snapshots)
    longer = [*state, *range(300, 340)]
    batch = run([work(longer, [[200], [201]], state=140)], 256, None, snapshots)
    assert sum(batch.tokens(call) for call in batch.calls) == 42
    assert snapshots.counts.kept == 2


def test_options_listed_once_for_all_are_read_once():
    """Two questions on one state, each with a list that its prompts share: a tree of three levels."""
    lists = [[n] * 50 for n in (300, 301)]
    works = [work(list(range(LEAST_PREFIX_TOKENS)), [[*each, 1, n] for each in lists for n in range(5)], state=32)]
    batch = run(works, 256, None, Snapshots(4, 1000))
    assert sum(batch.tokens(call) for call in batch.calls) == 32 + 2 * (50 + 1 + 5)


def test_a_long_state_is_read_in_pieces():
    batch = run([work(list(range(1000)), [[1], [2]], state=1000)])
    assert [batch.tokens(call) for call in batch.calls[:6]] == [166, 167, 167, 166, 167, 167]


def test_a_call_far_behind_its_beginning_counts_for_more():
    batch = run([work([5] * 8000, [[1], [2]], state=8000)])
    assert batch.tokens(batch.calls[-1]) > 2


def test_requests_on_one_kept_state_share_a_call():
    snapshots = Snapshots(4, 1000)
    state = list(range(1, 101))
    run([work(state, [[200]], state=100)], 256, None, snapshots)
    assert len(run([work(state, [[n]], str(n), 100) for n in range(5)], 256, None, snapshots).calls) == 1


def test_an_impossible_state_length_is_cut_to_the_prefix():
    each = work([3] * 40, [[1], [2]], state=99)
    assert run([each], 256, None, Snapshots(4, 1000)).answers() == [expected(each)]
