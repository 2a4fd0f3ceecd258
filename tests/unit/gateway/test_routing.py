import pytest
from hypothesis import given
from hypothesis import strategies as st

from ostraka_gateway.routing import candidates, state_of
from ostraka_gateway.worker import KEPT_STATES, State, Worker
from ostraka_shared.messages import Beat, Hello
from ostraka_shared.reading_rules import LEAST_PREFIX_TOKENS


def worker(name, outstanding=0, credit=100, last_turn=0):
    each = Worker(name.encode(), Hello("c", name, 1, "f", "h", 1, ()), 0.0)
    each.credit.tokens, each.batch_tokens = credit, credit // 2
    if outstanding:
        each.hold("held", outstanding, last_turn)
    each.last_turn = last_turn
    return each


def choose(workers, tokens):
    return next(iter(candidates(workers, tokens)), None)


def chosen(workers, tokens):
    found = choose(workers, tokens)
    return found.hello.worker_id if found else None


def test_nobody_is_ready():
    assert choose([], 1) is None


@pytest.mark.parametrize(("tokens", "name"), [(1, "b"), (40, "b"), (41, "b"), (81, "b"), (101, "b")])
def test_the_least_loaded_with_room(tokens, name):
    assert chosen([worker("a", 50), worker("b", 10), worker("c", 20)], tokens) == name


@pytest.mark.parametrize(("tokens", "name"), [(40, "a"), (41, None), (51, None), (100_000, None)])
def test_credit_is_used_to_the_last_token(tokens, name):
    each = worker("a", 50)
    each.hold("more", 10, 1)
    assert chosen([each], tokens) == name


def test_the_least_loaded_may_lack_the_room_that_another_has():
    assert chosen([worker("small", 10, credit=15), worker("large", 50, credit=500)], 10) == "large"


def test_an_idle_worker_takes_a_request_of_any_size():
    assert chosen([worker("busy", 1, credit=50), worker("idle", 0, credit=50)], 10**9) == "idle"


def test_equals_take_turns():
    assert chosen([worker("a", last_turn=7), worker("b", last_turn=3), worker("c", last_turn=5)], 1) == "b"


WORKERS = st.lists(
    st.builds(worker, st.uuids().map(str), st.integers(0, 200), st.integers(1, 200), st.integers(0, 9)), max_size=6
)


@given(WORKERS, st.integers(1, 300))
def test_it_finds_one_exactly_if_there_is_one(workers, tokens):
    able = [w for w in workers if w.credit.has_room(tokens)]
    found = choose(iter(workers), tokens)
    assert (found in able) if able else (found is None)
    assert all(found.outstanding_tokens <= w.outstanding_tokens for w in able)


@given(st.integers(0, 400), st.integers(1, 200), st.integers(1, 800))
def test_credit_is_kept_and_a_long_request_leaves_half_of_it(outstanding, credit, tokens):
    each = worker("w", outstanding, credit)
    if not each.credit.has_room(tokens):
        assert each.held
        return
    each.hold("new", tokens, 1)
    assert each.credit.claimed <= credit
    assert (
        len(each.credit.long_sizes)
        == len(set(each.credit.long_sizes))
        == sum(held > credit // 2 for held in each.held.values())
    )
    assert each.credit.has_room(1) == (each.credit.claimed < credit)
    for name in list(each.held):
        each.release(name)
    assert (each.credit.claimed, each.outstanding_tokens, list(each.credit.long_sizes)) == (0, 0, [])


def test_a_page_does_not_wait_for_a_book():
    each = worker("w", 100_000, credit=512)
    assert each.credit.has_room(1000)
    each.hold("page", 1000, 1)
    assert not each.credit.has_room(900), "a second one of that size waits"
    assert each.credit.has_room(256), "all long ones together claim half of the credit"
    assert not each.credit.has_room(257)


def test_beside_one_that_runs_alone_there_is_no_room():
    each = worker("w", credit=512)
    each.hold("alone", 1000, 1, is_alone=True)
    assert not any(each.credit.has_room(tokens) for tokens in (1, 600, 100_000))
    each.release("alone")
    assert each.credit.has_room(1)


def test_the_faster_worker_is_done_first():
    slow, fast = worker("slow", 50), worker("fast", 80)
    slow.cost.start(100.0)
    fast.cost.start(1000.0)
    assert chosen([slow, fast], 10) == "fast"


STATE = State(b"state", 50)


def timed(name, outstanding=0, credit=1000):
    each = worker(name, outstanding, credit)
    each.cost.start(100.0)
    return each


def first(workers, tokens=60, state=STATE):
    return candidates(workers, tokens, state)[0].hello.worker_id


def test_who_keeps_the_state_is_preferred_while_waiting_costs_less_than_reading_it():
    other, keeper = timed("other", 10), timed("keeper", 55)
    keeper.keep(STATE)
    assert first([other, keeper]) == "keeper"
    assert first([other, keeper], state=State(b"another", 50)) == "other"
    keeper.hold("more", 10, 1)
    assert first([other, keeper]) == "other"


def test_a_kept_state_takes_no_room():
    keeper = timed("keeper", 80, credit=100)
    assert candidates([keeper], 60, STATE) == []
    keeper.keep(STATE)
    assert candidates([keeper], 60, STATE) == [keeper]
    assert candidates([keeper], 60, None) == []


def test_idle_workers_share_states_by_rendezvous_and_keep_most_when_one_is_lost():
    workers = [timed(f"w{number}") for number in range(4)]
    states = [State(str(number).encode(), 50) for number in range(400)]
    owners = {state: first(workers, state=state) for state in states}
    assert all(60 < list(owners.values()).count(f"w{number}") < 140 for number in range(4))
    for each in workers:
        each.last_turn = 7  # who was served when decides nothing here
    left = {state: first(workers[:3], state=state) for state in states}
    assert all(left[state] == owner for state, owner in owners.items() if owner != "w3")


def test_what_is_known_of_a_workers_states_is_bounded_as_its_own_cache_is():
    each = timed("w")
    states = [State(str(number).encode(), 100) for number in range(40)]
    for state in states:
        each.keep(state)
        each.keep(states[0])
    assert sum(map(each.keeps, states)) == KEPT_STATES[0]
    assert each.keeps(states[0])
    assert each._kept_tokens == 100 * KEPT_STATES[0]
    each.beat = Beat(0, 0, 0, 0, 0, 0, snapshots_max=0, snapshots_max_tokens=0)
    each.keep(states[1])
    assert not any(map(each.keeps, states))
    assert each._kept_tokens == 0


def test_a_state_too_large_to_be_kept_drives_out_no_other():
    each = timed("w")
    small, large = State(b"small", 100), State(b"large", KEPT_STATES[1] + 1)
    each.keep(small)
    each.keep(large)
    assert (each.keeps(small), each.keeps(large)) == (True, False)


def test_a_state_is_known_by_its_tokens_alone_and_a_short_one_is_none():
    tokens = b"abcd" * LEAST_PREFIX_TOKENS
    assert state_of(tokens + b"more", LEAST_PREFIX_TOKENS, 4) == state_of(tokens, LEAST_PREFIX_TOKENS, 4)
    assert state_of(b"x" + tokens[1:], LEAST_PREFIX_TOKENS, 4) != state_of(tokens, LEAST_PREFIX_TOKENS, 4)
    assert state_of(tokens, LEAST_PREFIX_TOKENS - 1, 4) is None
