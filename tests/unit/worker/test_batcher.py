import itertools
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from ostraka_shared.messages import Work
from ostraka_shared.reading_rules import LARGEST_SIZE, size_of
from ostraka_worker.batcher import Batcher
from ostraka_worker.fair_line import Waiting


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


def test_one_larger_than_the_budget_waits_among_its_size_and_goes_alone():
    batcher = filled(10, 50, 1, 60, 11, 9999)
    assert batcher.sizes == {0, 1, 2, 3}
    assert names(batcher.next_batch()) == ["1"]
    assert names(batcher.next_batch(2)) == ["0"]
    assert names(batcher.next_batch(2)) == ["2"]
    assert batcher.next_batch(2) == []
    assert batcher.sizes == {1, 3}


def test_nobody_is_overtaken_by_one_that_would_fit():
    batcher = filled(10, 6, 5, 4)
    assert names(batcher.next_batch()) == ["0"]
    assert names(batcher.next_batch()) == ["1", "2"]


def test_each_gateway_that_waits_is_in_every_batch():
    batcher = Batcher(10)
    for number in range(20):
        batcher.add(waiting(number, 2))
    batcher.next_batch()
    batcher.add(replace(waiting("other", 2), gateway=1))
    assert "other" in names(batcher.next_batch())


def test_what_one_gateway_asked_is_forgotten_alone():
    batcher = Batcher(10)
    for gateway in (0, 1, 0):
        batcher.add(replace(waiting(gateway, 2), gateway=gateway))
    batcher.clear(0)
    assert (len(batcher), batcher.queued_tokens, names(batcher.next_batch())) == (1, 2, ["1"])


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


def test_what_is_taken_out_is_gone():
    batcher = filled(10, 6, 50)
    assert batcher.take_out("1", 2) is None
    assert [batcher.take_out(name, 1).work.request_id for name in ("1", "0")] == ["1", "0"]
    assert (len(batcher), batcher.queued_tokens) == (0, 0)


@given(st.lists(st.integers(1, 40)), st.integers(1, 60))
def test_batches_are_the_queue_in_order_under_the_budget(sizes, budget):
    batcher = filled(budget, *sizes)
    batches = []
    while batch := batcher.next_batch():
        batches.append(batch)
    for size in range(1, LARGEST_SIZE + 1):
        long = []
        while batch := batcher.next_batch(size):
            long += names(batch)
        assert long == [str(n) for n, tokens in enumerate(sizes) if size_of(tokens, budget) == size]
    assert not len(batcher)
    assert [name for batch in batches for name in names(batch)] == [str(n) for n, s in enumerate(sizes) if s <= budget]
    for batch in batches:
        assert sum(each.tokens for each in batch) <= budget
    for batch, following in itertools.pairwise(batches):  # greedy: the next one would not have fitted
        assert sum(each.tokens for each in batch) + following[0].tokens > budget


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.integers(1, 30), st.integers(0, 5)),
        st.tuples(st.just("batch"), st.integers(0, LARGEST_SIZE)),
        st.tuples(st.just("take out"), st.integers(0, 60)),
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
        sizes = range(LARGEST_SIZE + 1)
        lines = [[each for each in model if size_of(each.tokens, budget) == size] for size in sizes]
        assert batcher.sizes == {size for size in sizes if lines[size]}
        match step:
            case ("add", tokens, seconds):
                model.append(waiting(number, tokens, seconds * 1000, now))
                batcher.add(model[-1])
            case ("batch", size):
                batch = batcher.next_batch(size)
                assert batch == lines[size][: len(batch)]
                assert bool(batch) == bool(lines[size])
                assert len(batch) <= 1 or not size
                model = [each for each in model if each not in batch]
            case ("take out", name):
                found = [each for each in model if each.work.request_id == str(name)]
                assert batcher.take_out(str(name), 1) == (found[0] if found else None)
                model = [each for each in model if each not in found]
            case ("expire", seconds):
                now += seconds
                expired = [each for line in lines for each in line if each.deadline <= now]
                assert batcher.drop_expired(now) == expired
                model = [each for each in model if each.deadline > now]
            case ("clear",):
                batcher.clear()
                model = []
        assert len(batcher) == len(model)
        assert batcher.queued_tokens == sum(each.tokens for each in model)
