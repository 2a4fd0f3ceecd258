"""What is refused before it waits, by the load there is."""

import pytest

from ostraka_gateway.speeds import FRESH_S
from ostraka_shared import errors
from ostraka_shared.codec import MAX_FRAME_BYTES, encode
from tests.unit.gateway.world import LIMIT, busy_for, is_empty, refused


def test_nobody_to_ask(world):
    assert refused(world, "a", errors.NoWorkerReady).retry_after_s
    assert is_empty(world)


def test_a_deadline_in_the_past_is_not_sent(world):
    world.join("w0")
    refused(world, "a", errors.DeadlineExceeded, deadline_s=0.0)
    assert world.sent == []
    assert is_empty(world)


def test_a_full_queue_refuses(world):
    worker = world.join("w0")
    world.ask("a", LIMIT)
    world.ask("b", LIMIT)
    refused(world, "c", errors.Overloaded, count=1)
    assert world.dispatcher.line.tokens == LIMIT
    world.answer(worker, "a")
    world.call(world.dispatcher.pump)
    assert not world.ask("d", 1).done()


def test_what_cannot_be_in_time_is_told_so_at_once(world):
    worker = world.join("w0")
    world.ask("nobody knows", 50_000, deadline_s=1.0)
    world.answer(worker, "nobody knows")
    busy_for(world, worker, 100, 1.0)
    error = refused(world, "a", errors.DeadlineExceeded, count=900, deadline_s=1.0)
    assert error.retry_after_s is None
    assert "at best" in str(error)
    assert not world.ask("b", 900, deadline_s=30.0).done()
    assert [name for name, _ in world.sent_to(worker)] == ["nobody knows", "b"]


def test_an_old_measurement_refuses_nobody(world):
    worker = world.join("w0")
    busy_for(world, worker, 100, 1.0)
    world.loop.advance(FRESH_S)
    assert not world.ask("a", 900, deadline_s=1.0).done()


def test_an_old_measurement_is_better_than_none_where_many_come_at_once(world):
    """Until the first of them was read, all would be let in, most of them to be late."""
    worker = world.join("w0")
    busy_for(world, worker, 100, 1.0)
    world.loop.advance(FRESH_S)
    assert not world.ask("a", 90, deadline_s=2.0).done()
    assert not world.ask("b", 90, deadline_s=4.0).done()
    refused(world, "c", errors.Overloaded, count=90, deadline_s=2.0)


def test_a_busy_worker_is_no_wait_where_another_is_idle(world):
    busy, idle = world.join("w0"), world.join("w1")
    for worker in (busy, idle):
        busy_for(world, worker, 100, 1.0)
    world.ask("a", 90)
    assert not world.ask("b", 50, deadline_s=0.7).done()
    refused(world, "c", errors.Overloaded, count=10, deadline_s=0.7)


def test_a_line_does_not_wait_for_all_the_books_that_wait(world):
    worker = world.join("w0")
    busy_for(world, worker, 100, 1.0)
    for name in ("book", "second book"):
        assert not world.ask(name, 900, deadline_s=60.0).done()
    assert world.dispatcher.line.tokens == 900
    assert not world.ask("a", 40, deadline_s=2.0).done()
    assert [name for name, _ in world.sent_to(worker)] == ["book", "a"]
    refused(world, "third book", errors.Overloaded, count=90, deadline_s=2.0)


def refusal_of_all(world, deadline_s):
    """Asked on the loop, as a request does."""
    found = []
    world.call(lambda: found.append(world.single_flight.refusal_of_all(world.loop.time() + deadline_s)))
    return found[0]


def test_who_would_be_refused_whatever_it_asks_is_refused_unread(world):
    worker = world.join("w0")
    busy_for(world, worker, 100, 1.0)
    assert refusal_of_all(world, 2.0) is None
    for name in ("book", "second book"):
        world.ask(name, 900, deadline_s=60.0)
    assert refusal_of_all(world, 2.0) is None, "a line would pass them"
    world.ask("a", 40, deadline_s=2.0)
    for name in ("b", "c"):
        world.ask(name, 45, deadline_s=60.0)
    unread = refusal_of_all(world, 2.0)
    assert unread.retry_after_s == refused(world, "d", errors.Overloaded, count=1, deadline_s=2.0).retry_after_s
    refused(world, "third book", errors.Overloaded, count=90, deadline_s=2.0)
    assert refusal_of_all(world, 60.0) is None
    assert refusal_of_all(world, 0.0) is None, "it is too late, whoever waits"


def test_what_may_be_known_already_is_looked_up(world):
    worker = world.join("w0")
    busy_for(world, worker, 100, 1.0)
    for name in ("a", "b"):
        world.ask(name, 50, deadline_s=60.0)
    world.ask("c", 50, deadline_s=60.0)
    assert refusal_of_all(world, 0.5) is not None
    world.answers.most_bytes = 1000
    assert refusal_of_all(world, 0.5) is None


def test_a_request_too_large_for_a_frame_is_the_clients_to_mend(world):
    world.join("w0")
    refused(world, "a", errors.InvalidRequest, count=MAX_FRAME_BYTES // 4)
    assert is_empty(world)


@pytest.mark.parametrize("prompts", [1, 1000, 25_000])
def test_the_largest_request_that_is_let_in_fits_a_frame(world, prompts):
    world.join("w0")
    name = "req_" + "0" * 24
    count = MAX_FRAME_BYTES // prompts // 4
    while world.ask(name, count=count, prompts=prompts).done():
        count -= max(1, 64 // prompts)
    ((_, work),) = world.sent
    assert len(encode(work)) <= MAX_FRAME_BYTES
