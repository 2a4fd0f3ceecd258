"""A request of many prompts is read by several workers, and answered whole."""

from ostraka_shared import errors
from tests.unit.gateway.world import is_empty, late, p_yes_of, question, withdrawn_from


def test_a_request_of_many_prompts_is_read_by_all_who_are_idle_and_joined(world):
    workers = [world.join(f"w{number}", credit=400) for number in range(2)]
    task = world.ask("a", 40, prompts=6)
    assert [world.sent_to(worker) for worker in workers] == [[("a/0", 1)], [("a/1", 1)]]
    works = [message for _, message in world.sent]
    assert sorted(suffix for work in works for suffix in work.suffixes) == sorted(question("a", 40, 6)[1])
    world.answer(workers[1], "a/1", p_yes=p_yes_of(works[1].suffixes), inference_ms=7.0)
    assert not task.done(), "never a partial answer"
    world.answer(workers[0], "a/0", p_yes=p_yes_of(works[0].suffixes), inference_ms=9.0)
    assert task.result().p_yes == p_yes_of(question("a", 40, 6)[1])
    assert task.result().inference_ms == 9.0
    assert is_empty(world)


def test_a_failed_part_fails_the_whole_and_the_other_is_withdrawn(world):
    workers = [world.join(f"w{number}", credit=400) for number in range(2)]
    task = world.ask("a", 40, prompts=6)
    world.fail(workers[1], "a/1")
    assert isinstance(task.exception(), errors.EngineFailed)
    assert withdrawn_from(world, workers[0]) == [("a/0", 1)]
    assert withdrawn_from(world, workers[1]) == []
    world.fail(workers[0], "a/0", "cancelled")
    assert workers[0].held == {}
    assert (late(world), list(world.parts)) == (0, [])


def test_a_lost_workers_part_alone_is_sent_again(world):
    workers = [world.join(f"w{number}", credit=400) for number in range(2)]
    task = world.ask("a", 40, prompts=6)
    works = {message.request_id: message for _, message in world.sent}
    world.started(workers[0], "a/0")
    world.call(world.lose, workers[0])
    assert world.sent_to(workers[1]) == [("a/1", 1)]  # it runs alone from now on
    world.answer(workers[1], "a/1", p_yes=p_yes_of(works["a/1"].suffixes))
    world.call(world.dispatcher.pump)
    assert world.sent_to(workers[1]) == [("a/1", 1), ("a/0", 2)]
    world.answer(workers[1], "a/0", attempt=2, p_yes=p_yes_of(works["a/0"].suffixes))
    assert task.result().p_yes == p_yes_of(question("a", 40, 6)[1])


def test_two_parts_of_a_request_that_kill_a_worker_each_make_it_poison(world):
    workers = [world.join(f"w{number}", credit=400) for number in range(2)]
    task = world.ask("a", 40, prompts=6)
    for number, worker in enumerate(workers):
        world.started(worker, f"a/{number}")
    world.call(world.lose, workers[0])
    world.call(world.lose, workers[1])
    assert isinstance(task.exception(), errors.PoisonedRequest)
    assert "request a" in str(task.exception())
    assert world.sent_to(world.join("w2")) == []


def test_it_is_not_split_while_others_wait(world):
    worker, other = world.join("w0"), world.join("w1")
    world.ask("a", 100)
    world.ask("b", 100)
    world.ask("many", 20, prompts=4)
    world.ask("c", 100)
    world.answer(worker, "a")
    world.answer(other, "b")
    world.call(world.dispatcher.pump)
    assert (world.sent_to(worker)[1:], world.sent_to(other)[1:]) == ([("many", 1)], [("c", 1)])
