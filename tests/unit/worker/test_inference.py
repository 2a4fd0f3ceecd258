import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ostraka_shared.errors import EngineFailed
from ostraka_shared.messages import Work
from ostraka_worker.fake_engine import FakeEngine, fake_logits
from ostraka_worker.inference import BatchRun, split_prompts
from ostraka_worker.scoring import p_yes

FAIL, NAN = 900, 901
PLAN = {"fail_on_token": FAIL, "nan_on_token": NAN}
IDS = st.lists(st.integers(0, 800), max_size=8)
WORKS = st.lists(st.tuples(IDS, st.lists(IDS.filter(len), min_size=1, max_size=4)), min_size=1, max_size=6)


def ids(tokens):
    return np.array(tokens, "<u4").tobytes()


def work(prefix, suffixes, name="r"):
    return Work(name, 1, 1000, ids(prefix), tuple(map(ids, suffixes)))


def expected(each):
    return tuple(p_yes(np.stack([fake_logits(np.concatenate([p.prefix, p.suffix])) for p in split_prompts(each)])))


class CountingEngine(FakeEngine):
    def __init__(self, plan=PLAN):
        super().__init__(plan)
        self.calls = []

    def run(self, prompts):
        self.calls.append(len(prompts))
        return super().run(prompts)


def run(works, budget=64, engine=None):
    batch = BatchRun(works, budget)
    for call in batch.calls:
        batch.run(engine or CountingEngine(), call)
    return batch


def test_prompts_are_views_of_the_message():
    each = work([1, 65536], [[2], [3, 4]])
    first, second = split_prompts(each)
    assert first.prefix.tolist() == [1, 65536]
    assert second.suffix.tolist() == [3, 4]
    assert second.tokens == 4
    assert not first.prefix.flags.owndata
    assert not second.suffix.flags.owndata


@given(WORKS, st.integers(1, 40))
@settings(max_examples=50)
def test_answers_are_those_of_each_prompt_alone_in_order(parts, budget):
    works = [work(*each, name=str(n)) for n, each in enumerate(parts)]
    batch = run(works, budget)
    assert batch.failures == {}
    assert batch.answers() == [expected(each) for each in works]


@given(WORKS, st.integers(1, 40), st.data())
@settings(max_examples=50)
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
@settings(max_examples=50)
def test_calls_account_for_every_token_and_request(parts, budget):
    works = [work(*each, name=f"r{n}") for n, each in enumerate(parts)]
    batch = BatchRun(works, budget)
    assert sum(batch.tokens(call) for call in batch.calls) == sum(each.tokens for each in works)
    assert {name for call in batch.calls for name in batch.request_ids(call)} == {each.request_id for each in works}
    for call in batch.calls:
        assert len(set(batch.request_ids(call))) == len(batch.request_ids(call))


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

    class Leaky:
        version = "leaky"

        def run(self, _):
            raise MemoryError("secret of another request")

    failure = run([work([], [[1]])], engine=Leaky()).failures[0]
    assert isinstance(failure, EngineFailed)
    assert str(failure) == "the model call failed (MemoryError)"


@pytest.mark.parametrize("stop", [KeyboardInterrupt, SystemExit])
def test_the_end_of_the_process_is_no_failure_of_a_call(stop):
    class Stopped:
        version = "stopped"

        def run(self, _):
            raise stop

    with pytest.raises(stop):
        run([work([], [[1]])], engine=Stopped())


def test_a_request_without_prompts_has_no_answers():
    batch = run([work([1], []), work([], [[1]])])
    assert batch.answers()[0] == ()
