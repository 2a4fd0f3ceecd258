"""Who shares one thing has as much of it: by hand, and with any amounts."""

from hypothesis import given
from hypothesis import strategies as st

from ostraka_worker.turns import Turns


def test_nobody_wants_any():
    assert Turns().next([]) is None


def test_who_comes_is_next_and_has_as_much_as_the_last_use_was():
    turns = Turns()
    turns.join(1)
    for amount in (5.0, 7.0):
        turns.use(1, amount)
    turns.join(0)
    order = []
    for _ in range(5):
        order.append(turns.next([0, 1]))
        turns.use(order[-1], 3.0 if order[-1] == 0 else 7.0)
    assert order == [0, 0, 0, 1, 0]


def test_what_was_not_wanted_in_time_is_not_owed():
    turns = Turns()
    turns.join(0)
    turns.join(1)
    for _ in range(100):
        turns.use(1, 1.0)
    turns.join(0)
    order = []
    for _ in range(6):
        order.append(turns.next([0, 1]))
        turns.use(order[-1], 1.0)
    assert order == [0, 0, 1, 0, 1, 0]


@given(st.lists(st.floats(0.1, 10.0), min_size=30, max_size=200), st.integers(2, 4))
def test_all_have_as_much_but_for_one_use(amounts, sharers):
    turns, used = Turns(), [0.0] * sharers
    for who in range(sharers):
        turns.join(who)
    for amount in amounts:
        who = turns.next(range(sharers))
        turns.use(who, amount)
        used[who] += amount
        assert max(used) - min(used) <= max(amounts) + 1e-9
