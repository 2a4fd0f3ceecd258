"""Gateways take turns by tokens: by hand, and against what fairness means."""

from hypothesis import given
from hypothesis import strategies as st

from ostraka_shared.messages import Work
from ostraka_worker.fair_line import FairLine, Waiting


def waiting(name, gateway, tokens=1):
    return Waiting.take(Work(str(name), 1, 1000, b"", (b"\0\0\0\0" * tokens,)), 0.0, gateway)


def drained(line):
    return [line.popleft() for _ in range(len(line))]


def test_a_gateway_with_one_request_does_not_wait_behind_anothers_hundred():
    line = FairLine()
    for number in range(100):
        line.append(waiting(number, 0))
    line.popleft()
    line.append(waiting("other", 1))
    assert [each.work.request_id for each in (line.popleft(), line.popleft())].count("other") == 1


def test_tokens_are_shared_not_requests():
    line = FairLine()
    for number in range(40):
        line.append(waiting(number, 0, tokens=10))
        line.append(waiting(number, 1, tokens=1))
    first = [line.popleft() for _ in range(22)]
    taken = [sum(each.tokens for each in first if each.gateway == gateway) for gateway in (0, 1)]
    assert abs(taken[0] - taken[1]) <= 10


def test_what_was_not_asked_for_in_time_is_not_owed():
    """A gateway that comes back after the other was served alone does not now get everything."""
    line = FairLine()
    for number in range(50):
        line.append(waiting(number, 0))
    line.append(waiting("first", 1))
    assert len(drained(line)) == 51
    for number in range(10):
        line.append(waiting(number, 1))
        line.append(waiting(number, 0))
    assert {each.gateway for each in (line.popleft(), line.popleft())} == {0, 1}


def test_what_is_taken_out_or_forgotten_is_nobodys_turn():
    line = FairLine()
    asked = [waiting(number, number % 2) for number in range(6)]
    for each in asked:
        line.append(each)
    line.clear(0)
    line.remove(asked[1])
    assert [each.work.request_id for each in drained(line)] == ["3", "5"]
    assert line.head is None


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(1, 20)), min_size=1, max_size=60), st.integers(0, 60))
def test_order_within_a_gateway_and_no_gateway_ahead_of_another_that_waits(asked, turns):
    """While two both wait, what they have been given differs by less than two of the largest requests."""
    line = FairLine()
    for number, (gateway, tokens) in enumerate(asked):
        line.append(waiting(number, gateway, tokens))
    given_tokens = dict.fromkeys({gateway for gateway, _ in asked}, 0)
    for _ in range(min(turns, len(asked))):
        backlogged = {each.gateway for each in line}
        taken = line.popleft()
        assert taken.work.request_id == min(
            (each.work.request_id for each in [taken, *line] if each.gateway == taken.gateway), key=int
        )
        given_tokens[taken.gateway] += taken.tokens
        both = [given_tokens[gateway] for gateway in backlogged & {each.gateway for each in line}]
        assert not both or max(both) - min(both) <= 2 * 20
