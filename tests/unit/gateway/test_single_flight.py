"""Those who wait for answers: expired, gone, many for the same one, answered from the cache."""

from ostraka_gateway.single_flight import Reply
from ostraka_shared import errors
from tests.unit.gateway.world import is_empty, late, withdrawn_from


def test_an_expired_request_ends_and_its_late_result_is_counted(world):
    worker = world.join("w0")
    task = world.ask("a", deadline_s=1.0)
    world.loop.advance(1.0)
    assert isinstance(task.exception(), errors.DeadlineExceeded)
    assert worker.held == {"a": 10}  # the worker has it still, and less room for that
    world.answer(worker, "a")
    assert worker.held == {}
    assert late(world) == 1
    assert is_empty(world)


def test_a_request_that_expires_while_it_waits_leaves_the_queue(world):
    world.join("w0")
    world.ask("a", 100)
    task = world.ask("b", 100, deadline_s=1.0)
    world.loop.advance(1.0)
    assert isinstance(task.exception(), errors.DeadlineExceeded)
    assert world.dispatcher.line.tokens == 0


def test_a_client_that_leaves_takes_its_request_along(world):
    worker = world.join("w0")
    world.ask("a", 100)
    world.ask("b", 100).cancel()
    world.loop.settle()
    assert world.dispatcher.line.tokens == 0
    world.tasks["a"].cancel()
    world.loop.settle()
    assert is_empty(world)
    world.answer(worker, "a")
    assert late(world) == 1


def test_a_client_that_left_is_not_served(world):
    worker = world.join("w0", credit=20)
    sent, waiting = world.ask("sent", 20), world.ask("waiting", 20)
    for name in ("sent", "waiting", "unknown"):
        world.call(world.single_flight.abandon, name)
    assert isinstance(sent.exception(), errors.ClientLeft)
    assert isinstance(waiting.exception(), errors.ClientLeft)
    world.answer(worker, "sent", attempt=1)
    assert world.sent_to(worker) == [("sent", 1)]
    assert is_empty(world)


def test_identical_requests_share_one_execution(world):
    worker = world.join("w0")
    first = world.ask("a")
    second = world.ask("b", as_name="a")
    assert world.sent_to(worker) == [("a", 1)]
    assert world.single_flight.in_flight_requests == 2
    world.answer(worker, "a", p_yes=(0.75,))
    assert (first.result().p_yes, second.result().p_yes) == ((0.75,), (0.75,))
    assert is_empty(world)
    world.ask("c", as_name="a")
    assert world.sent_to(worker) == [("a", 1), ("c", 1)], "what is answered is asked anew"


def test_a_kept_answer_is_given_without_a_worker(world):
    worker = world.join("w0")
    world.answers.most_bytes = 10_000
    world.ask("a")
    world.answer(worker, "a", p_yes=(0.75,))
    world.call(world.lose, worker)
    again = world.ask("b", as_name="a")
    assert again.result() == Reply((0.75,), 0.0, 0.0)
    assert world.metrics.cached._value.get() == 1
    assert is_empty(world)


def test_a_failure_is_not_kept(world):
    worker = world.join("w0")
    world.answers.most_bytes = 10_000
    world.ask("a")
    world.fail(worker, "a")
    world.ask("b", as_name="a")
    assert world.sent_to(worker) == [("a", 1), ("b", 1)]


def test_a_shared_execution_lives_as_long_as_one_waits(world):
    worker = world.join("w0")
    first, second = world.ask("a"), world.ask("b", as_name="a")
    world.call(world.single_flight.abandon, "a")
    assert isinstance(first.exception(), errors.ClientLeft)
    assert withdrawn_from(world, worker) == []
    world.answer(worker, "a")
    assert second.result()


def test_each_of_those_who_share_keeps_its_own_deadline_and_name(world):
    worker = world.join("w0")
    first, second = world.ask("a", deadline_s=1.0), world.ask("b", as_name="a", deadline_s=30.0)
    world.loop.advance(1.0)
    assert isinstance(first.exception(), errors.DeadlineExceeded)
    world.fail(worker, "a", "deadline_exceeded")  # it was told of the first one's alone
    world.call(world.dispatcher.pump)
    assert world.sent[-1][1].deadline_ms == 29_000
    for number in range(2):
        (worker,) = world.roster
        world.started(worker, "a")
        world.call(world.lose, worker)
        world.join(f"x{number}")
    assert "request b" in str(second.exception())


def test_one_who_is_in_a_hurry_makes_what_is_shared_urgent(world):
    worker = world.join("w0", credit=10)
    world.ask("z")
    for name in ("a", "b"):
        world.ask(name)
    world.ask("hurry", as_name="b", deadline_s=2.0)
    world.answer(worker, "z")
    world.call(world.dispatcher.pump)
    assert world.sent_to(worker)[1:] == [("b", 1)]
