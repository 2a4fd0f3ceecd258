import weakref
from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from ostraka_gateway.waiting_line import LEAST_MARKED, PATIENCE_S, WaitingLine, due


@dataclass(eq=False)
class Waiter:
    name: str
    tokens: int
    lane: int = 0
    first_ticket: int = 0
    ticket: int = 0


def names(line):
    return [waiter.name for waiter in line.heads()]


def test_the_most_urgent_of_each_lane_the_most_urgent_first():
    line = WaitingLine()
    for name, due_at, lane in (("a", 5.0, 0), ("b", 4.0, 1), ("c", 3.0, 0), ("d", 9.0, 1)):
        line.push(Waiter(name, 1), due_at, lane)
    assert names(line) == ["c", "b"]


def test_who_is_put_to_another_place_is_there_once():
    line = WaitingLine()
    one, other = Waiter("one", 3), Waiter("other", 4)
    line.push(one, 5.0, 0)
    line.push(other, 4.0, 0)
    line.push(one, 1.0, 1)
    assert (names(line), line.count, line.tokens) == (["one", "other"], 2, 7)
    assert +line.lane_tokens == {0: 4, 1: 3}


def test_of_equals_the_one_that_came_first_though_it_was_away():
    line = WaitingLine()
    one, other = Waiter("one", 1), Waiter("other", 1)
    line.push(one, 5.0, 0)
    line.push(other, 5.0, 0)
    line.remove(one)
    line.push(one, 5.0, 0)
    assert names(line) == ["one"]


@given(st.lists(st.tuples(st.floats(0.1, 600.0), st.floats(0.0, 3.0)), min_size=2, max_size=60))
def test_nobody_is_overtaken_by_those_who_come_more_than_its_patience_later(arrivals):
    """Whatever deadlines the later ones have: no one starves."""
    line, now, admitted = WaitingLine(), 0.0, {}
    for number, (deadline_s, gap) in enumerate(arrivals):
        now += gap
        admitted[str(number)] = now
        line.push(Waiter(str(number), 1), due(now, now + deadline_s), 0)
    served = []
    while heads := line.heads():
        line.remove(heads[0])
        served.append(heads[0].name)
    for place, name in enumerate(served):
        assert all(admitted[later] >= admitted[name] - PATIENCE_S for later in served[place:])


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("push"), st.integers(0, 9), st.integers(0, 5), st.sampled_from(["", "long"])),
        st.tuples(st.just("remove"), st.integers(0, 9)),
        st.tuples(st.just("serve")),
    ),
    max_size=80,
)


@given(STEPS)
def test_against_the_plainest_model_there_is(steps):
    line, waiters, model = WaitingLine(), [Waiter(str(n), n + 1) for n in range(10)], {}
    for step in steps:
        match step:
            case ("push", number, due_at, lane):
                line.push(waiters[number], due_at, lane)
                model[number] = (due_at, waiters[number].first_ticket, lane)
            case ("remove", number):
                line.remove(waiters[number])
                model.pop(number, None)
            case ("serve",) if heads := line.heads():
                line.remove(heads[0])
                del model[int(heads[0].name)]
        firsts = [
            min((key, n) for n, key in model.items() if key[2] == lane) for lane in {k[2] for k in model.values()}
        ]
        assert names(line) == [str(number) for _, number in sorted(firsts)]
        assert (line.count, line.tokens) == (len(model), sum(number + 1 for number in model))


def test_who_leaves_behind_one_that_stays_is_not_kept():
    line, left = WaitingLine(), []
    line.push(Waiter("stays", 1), 1.0, 0)
    for number in range(2 * LEAST_MARKED):
        waiter = Waiter(str(number), 1)
        left.append(weakref.ref(waiter))
        line.push(waiter, 2.0 + number, 0)
        line.remove(waiter)
    line.push(Waiter("next", 1), 1.5, 0)
    del waiter
    assert sum(each() is not None for each in left) <= LEAST_MARKED + 2
    assert (names(line), line.count) == (["stays"], 2)
    line.remove(line.heads()[0])
    assert names(line) == ["next"]
