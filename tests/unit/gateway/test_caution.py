import pytest

from ostraka_gateway.caution import LEAST, MOST, Caution
from ostraka_gateway.load import measure_load
from ostraka_shared import errors
from tests.unit.gateway.world import busy_for


def after(late_in, count):
    """So many, of which one in `late_in` was late; 0 for none."""
    caution = Caution(1.5)
    for number in range(count):
        if late_in and number % late_in == 0:
            caution.learn(is_late=True)
        else:
            caution.learn(is_late=False)
    return caution.factor


@pytest.mark.parametrize(
    ("late_in", "least", "most"),
    [(1, MOST, MOST), (100, MOST - 0.1, MOST), (500, LEAST, LEAST + 0.1), (0, LEAST, LEAST)],
)
def test_it_grows_as_long_as_more_are_late_than_the_99th_percentile_has_room_for(late_in, least, most):
    assert least <= after(late_in, 20_000) <= most


@pytest.fixture
def waiting(world):
    """A worker that takes a second for each of those it holds, and for the one that waits."""
    worker = world.join("w0")
    busy_for(world, worker, 50, 1.0)
    for name in ("a", "b", "c"):
        world.ask(name, 50, deadline_s=60.0)
    return worker


def test_who_waited_and_is_late_makes_the_next_wait_seem_longer(world, waiting):
    assert not world.ask("late", 1, deadline_s=9.0).done()
    world.ask("joins", 1, deadline_s=0.5, as_name="late")
    world.loop.advance(0.6)
    assert isinstance(world.tasks["joins"].exception(), errors.DeadlineExceeded)
    assert world.roster.caution.factor == LEAST, "it did not wait for its own sake"
    world.loop.advance(9.0)
    assert isinstance(world.tasks["late"].exception(), errors.DeadlineExceeded)
    busy_for(world, waiting, 50, 1.0)
    load = measure_load(world.roster, world.dispatcher.line.lane_tokens, 1, world.loop.time())
    assert load.caution == world.roster.caution.factor > LEAST


def test_who_is_in_time_makes_it_seem_shorter_again(world, waiting):
    world.roster.caution.factor = 1.5
    for name in ("a", "b", "c"):
        world.answer(waiting, name)
        world.call(world.dispatcher.pump)
    assert world.tasks["c"].done()
    assert 1.49 < world.roster.caution.factor < 1.5


def test_who_is_late_because_a_worker_stood_still_teaches_nothing(world, waiting):
    world.ask("late", 1, deadline_s=9.0)
    world.call(world.dispatcher.suspected, waiting)
    world.loop.advance(9.5)
    assert isinstance(world.tasks["late"].exception(), errors.DeadlineExceeded)
    assert world.roster.caution.factor == LEAST


def test_who_had_not_to_wait_teaches_nothing(world):
    worker = world.join("w0")
    busy_for(world, worker, 50, 1.0)
    world.ask("a", 90, deadline_s=1.0)
    world.loop.advance(1.5)
    assert isinstance(world.tasks["a"].exception(), errors.DeadlineExceeded)
    assert world.roster.caution.factor == LEAST
