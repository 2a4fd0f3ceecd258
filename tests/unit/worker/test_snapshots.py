import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ostraka_shared.reading_rules import LEAST_PREFIX_TOKENS
from ostraka_worker.engine import Memory
from ostraka_worker.snapshots import Snapshots
from tests.works import ids

ROW_BYTES = 12


def memory(tokens):
    return Memory((np.zeros((tokens, 2), np.float32), np.zeros(tokens, np.uint32)))


def kept(snapshots, tokens):
    made = memory(len(tokens))
    if snapshots.wants(len(tokens)):
        snapshots.keep(ids(tokens), made)
    return made


def test_what_is_kept_is_found_by_its_tokens():
    snapshots = Snapshots(4, 1000)
    made = kept(snapshots, [1] * 50)
    assert snapshots.find(ids([1] * 50 + [2])) == (made, 50)
    assert snapshots.find(ids([1] * 40)) == (made, 40)
    assert snapshots.find(ids([1] * 32 + [2] * 9)) == (made, 32)
    assert snapshots.find(ids([1] * 31 + [2] * 9)) == (None, 0)
    assert snapshots.find(ids([1] * 31)) == (None, 0)
    counts = snapshots.counts
    assert (counts.hits, counts.misses, counts.reused_tokens) == (3, 2, 122)
    assert (counts.kept, counts.tokens, counts.bytes) == (1, 50, 50 * ROW_BYTES)


def test_the_longest_beginning_wins():
    snapshots = Snapshots(4, 1000)
    kept(snapshots, [1] * 40)
    longer = kept(snapshots, [1] * 60)
    kept(snapshots, [1] * 50 + [3] * 40)
    assert snapshots.find(ids([1] * 70)) == (longer, 60)


def test_the_least_recently_used_goes_first():
    snapshots = Snapshots(2, 1000)
    for token in (1, 2):
        kept(snapshots, [token] * 40)
    snapshots.find(ids([1] * 40))
    kept(snapshots, [3] * 40)
    assert [snapshots.find(ids([token] * 40))[1] for token in (1, 2, 3)] == [40, 0, 40]


def test_a_state_kept_again_is_used_again_and_not_twice():
    snapshots = Snapshots(2, 1000)
    for token in (1, 2, 1, 3):
        kept(snapshots, [token] * 40)
    assert [snapshots.find(ids([token] * 40))[1] for token in (1, 2, 3)] == [40, 0, 40]
    assert snapshots.counts.kept == 2


def test_a_request_without_a_prefix_is_neither_hit_nor_miss():
    snapshots = Snapshots(2, 1000)
    assert snapshots.find(b"") == (None, 0)
    assert snapshots.counts.misses == 0


@pytest.mark.parametrize(("most", "most_tokens"), [(0, 1000), (5, 0)])
def test_zero_of_either_turns_it_off(most, most_tokens):
    snapshots = Snapshots(most, most_tokens)
    assert not snapshots.wants(40)
    assert snapshots.find(ids([1] * 40)) == (None, 0)
    assert snapshots.counts.misses == 0
    assert not snapshots.is_on


def test_too_short_and_too_long_are_not_wanted():
    snapshots = Snapshots(5, 100)
    assert [snapshots.wants(tokens) for tokens in (31, 32, 100, 101)] == [False, True, True, False]


def test_the_report_names_what_a_beat_has():
    snapshots = Snapshots(5, 100)
    kept(snapshots, [1] * 40)
    assert snapshots.report() == {
        "snapshots_kept": 1,
        "snapshots_max": 5,
        "snapshots_tokens": 40,
        "snapshots_max_tokens": 100,
        "snapshots_hits": 0,
        "snapshots_misses": 0,
        "snapshots_reused_tokens": 0,
        "snapshots_bytes": 40 * ROW_BYTES,
    }


STATES = st.tuples(st.integers(0, 2), st.integers(30, 60), st.integers(0, 20)).map(lambda s: [s[0]] * s[1] + [9] * s[2])


@given(st.lists(st.tuples(st.booleans(), STATES), max_size=40), st.integers(1, 4), st.integers(32, 200))
def test_against_the_plainest_cache_there_is(steps, most, most_tokens):
    """A list, most recently used last."""
    snapshots, model = Snapshots(most, most_tokens), []
    for is_kept, state in steps:
        if is_kept and 32 <= len(state) <= most_tokens:
            made = kept(snapshots, state)
            known = next((each for each in model if each[0] == state), None)
            if known:
                model.remove(known)
            while not known and (len(model) >= most or sum(len(s) for s, _ in model) + len(state) > most_tokens):
                model.pop(0)
            model.append(known or (state, made))
        else:
            found, tokens = snapshots.find(ids(state))
            shares = [shared(state, each) for each, _ in model]
            best = max(shares, default=0)
            assert tokens == (best if best >= LEAST_PREFIX_TOKENS else 0)
            if found is not None:
                used = next(each for each in model if each[1] is found)
                assert shared(state, used[0]) == tokens
                model.remove(used)
                model.append(used)
        counts = snapshots.counts
        assert (counts.kept, counts.tokens) == (len(model), sum(len(state) for state, _ in model))
        assert counts.bytes == counts.tokens * ROW_BYTES
    assert counts_are_whole(snapshots)


def shared(one, other):
    return next((n for n, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))


def counts_are_whole(snapshots):
    return snapshots.counts.kept == len(snapshots._memories) == sum(map(len, snapshots._alike.values()))


def test_a_memory_is_cut_only_where_much_of_it_would_be_waste():
    made = memory(125)
    assert made.cut(100) is made
    assert made.cut(99).tokens == 99
    assert made.cut(99).nbytes == 99 * ROW_BYTES
