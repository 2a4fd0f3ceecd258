import itertools

from hypothesis import given
from hypothesis import strategies as st

from ostraka_shared.messages import Work
from ostraka_worker.batcher import Batcher, Waiting


def waiting(name, tokens, deadline_ms=1000, now=0.0):
    return Waiting.take(Work(str(name), 1, deadline_ms, b"", (b"\0\0\0\0" * tokens,)), now)


def names(batch):
    return [each.work.request_id for each in batch]


def filled(budget, *tokens):
    batcher = Batcher(budget)
    for name, count in enumerate(tokens):
        batcher.add(waiting(name, count))
    return batcher


def test_the_prefix_counts_once():
    work = Work("r", 1, 1500, b"\0" * 40, (b"\0" * 4, b"\0" * 8))
    taken = Waiting.take(work, 20.0)
    assert taken.tokens == 10 + 1 + 2
    assert taken.received == 20.0
    assert taken.deadline == 21.5


def test_an_empty_queue_has_no_batch():
    assert Batcher(10).next_batch() == []


def test_a_full_budget_is_used_to_the_last_token():
    assert names(filled(10, 4, 6, 1).next_batch()) == ["0", "1"]


def test_the_first_goes_whatever_its_size_and_then_goes_alone():
    batcher = filled(10, 50, 1)
    assert names(batcher.next_batch()) == ["0"]
    assert names(batcher.next_batch()) == ["1"]


def test_nobody_is_overtaken_by_one_that_would_fit():
    batcher = filled(10, 6, 5, 4)
    assert names(batcher.next_batch()) == ["0"]
    assert names(batcher.next_batch()) == ["1", "2"]


def test_expired_is_what_has_no_time_left():
    batcher = Batcher(10)
    for name, deadline_ms in enumerate((3000, 1000, 2000, 1001)):
        batcher.add(waiting(name, 2, deadline_ms))
    assert batcher.drop_expired(0.999) == []
    assert names(batcher.drop_expired(1.0)) == ["1"]
    assert names(batcher.drop_expired(2.5)) == ["2", "3"]
    assert batcher.queued_tokens == 2
    assert names(batcher.next_batch()) == ["0"]


def test_clear_forgets_all():
    batcher = filled(10, 6, 5, 4)
    batcher.clear()
    assert (len(batcher), batcher.queued_tokens, batcher.next_batch()) == (0, 0, [])


@given(st.lists(st.integers(1, 40)), st.integers(1, 60))
def test_batches_are_the_queue_in_order_under_the_budget(sizes, budget):
    batcher = filled(budget, *sizes)
    batches = []
    while len(batcher):
        batches.append(batcher.next_batch())
    assert [name for batch in batches for name in names(batch)] == [str(n) for n in range(len(sizes))]
    for batch in batches:
        assert len(batch) == 1 or sum(each.tokens for each in batch) <= budget
    for batch, following in itertools.pairwise(batches):  # greedy: the next one would not have fitted
        assert sum(each.tokens for each in batch) + following[0].tokens > budget


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.integers(1, 30), st.integers(0, 5)),
        st.tuples(st.just("batch")),
        st.tuples(st.just("expire"), st.integers(0, 2)),
        st.tuples(st.just("clear")),
    ),
    max_size=60,
)


@given(STEPS, st.integers(1, 40))
def test_nothing_is_lost_and_the_count_is_exact(steps, budget):
    """Against the plainest model there is: a list."""
    batcher, model, now = Batcher(budget), [], 0.0
    for number, step in enumerate(steps):
        match step:
            case ("add", tokens, seconds):
                model.append(waiting(number, tokens, seconds * 1000, now))
                batcher.add(model[-1])
            case ("batch",):
                batch = batcher.next_batch()
                assert batch == model[: len(batch)]
                assert bool(batch) == bool(model)
                del model[: len(batch)]
            case ("expire", seconds):
                now += seconds
                assert batcher.drop_expired(now) == [each for each in model if each.deadline <= now]
                model = [each for each in model if each.deadline > now]
            case ("clear",):
                batcher.clear()
                model = []
        assert len(batcher) == len(model)
        assert batcher.queued_tokens == sum(each.tokens for each in model)
