"""A worker's life: it introduces itself, loads, warms up, says how it stands, rests, and leaves."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ostraka_shared.messages import Beat, Bye, Drain, Ready, Refused, Result, Started, Welcome
from ostraka_worker.fake_engine import FakeEngine
from ostraka_worker.reports import DEFAULT_HEARTBEAT_S
from ostraka_worker.service import LAST_WORK_S, SHORT_CALL_TOKENS, WARM_UP_SHAPES, Service
from ostraka_worker.snapshots import Snapshots
from tests.unit.worker.serving import BUDGET, END, HELLO, READY, make_world, results, work


def test_it_introduces_itself_before_anything_is_loaded(world):
    world.service.introduce()
    assert world.link.sent == [HELLO]


def test_warm_up_runs_each_shape_and_says_nothing(world):
    world.service.load(lambda: world.engine)
    world.service.warm_up()
    assert world.engine.calls == [[tokens] * prompts for prompts, tokens in WARM_UP_SHAPES]
    assert world.link.sent == []


def test_ready_says_how_fast_the_last_warm_up_call_was(world):
    world.service.load(lambda: world.engine)
    world.service.warm_up()
    world.service.run()
    assert world.link.said[0].tokens_per_s == pytest.approx(1000.0)  # TimedEngine's


def test_an_engine_that_cannot_load_is_not_hidden(world):
    with pytest.raises(RuntimeError, match="no model"):
        world.service.load(lambda: FakeEngine({"fail_to_load": "no model"}))


def test_ready_then_drained(world):
    assert world.run() == [READY, *END]


@pytest.mark.parametrize("by", ["signal", "gateway"])
def test_drain_finishes_the_queue_then_says_bye(world, by):
    works = [work(name, 16) for name in "abc"]

    def told_to_drain():
        if by == "gateway":
            return [Drain()]
        world.service.request_drain()
        return []

    said = world.run(works, told_to_drain, [work("late", 1)])
    assert said.count(Drain()) == 1
    assert [each.request_id for each in results(said)] == ["a", "b", "c", "late"]
    assert said.index(Drain()) < said.index(results(said)[2])
    assert said[-1] == Bye("drained")


def test_a_signal_while_idle_is_seen_within_a_heartbeat(world):
    begun = world.clock.now

    def signalled():
        world.service.request_drain()
        return []

    assert world.run([], signalled) == [READY, *END]
    assert world.clock.now - begun <= 2 * DEFAULT_HEARTBEAT_S


def test_told_to_drain_it_waits_a_moment_only_for_work_on_its_way(world):
    def signalled():
        world.service.request_drain()
        return [Welcome(500)]  # time does not pass

    assert world.run([], signalled, [work("late", 1)])[-1] == Bye("drained")
    assert world.link.waits[-1] == LAST_WORK_S


def test_refused_for_good_it_leaves_without_a_bye(world):
    refusal = Refused("wrong_model", "another fingerprint")
    assert world.run([], [refusal]) == [READY]
    assert world.service.refusal == refusal


def test_messages_that_make_no_sense_here_are_ignored(world):
    nonsense = [READY, HELLO, Beat(0, 0, 0, 0, 0, 0), Started(("a",), 1), Result("a", 1, (0.5,), 0.0, 0.0), Bye("no")]
    assert world.run(nonsense, [work("a", 1)]) == [READY, Started(("a",), 1), results(world.link.said)[0], *END]


def test_a_beat_says_how_it_stands(world):
    world.link.dropped_frames = 5
    world.run([work("a", 5), work("b", 6), work("c", 16)], [], [], [])
    beats = [message for message in world.link.sent if isinstance(message, Beat)]
    first, last = beats[0], beats[-1]
    assert (first.queued_requests, first.queued_tokens) == (1, 16)
    assert (first.batches_done, first.batched_requests) == (1, 2)
    assert (last.queued_requests, last.queued_tokens) == (0, 0)
    assert (last.batches_done, last.batched_requests) == (2, 2)
    assert last.dropped_frames == 5
    assert last.rss_bytes > 1_000_000


GAPS = st.lists(
    st.tuples(st.floats(0.0, 0.99), st.sampled_from([Welcome(200), Welcome(501), Welcome(7), READY, None])), max_size=12
)


@given(GAPS)
@settings(max_examples=50)
def test_idle_it_is_never_silent_for_longer_than_a_heartbeat(gaps):
    """Whatever arrives meanwhile: a message that needs no answer must not put off the beat."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        world = make_world(monkeypatch)

        def arrive(share, message):
            def step():
                if message is None:
                    return []
                world.clock.advance(share * world.link.waits[-1])
                return [message]

            return step

        world.run(*(arrive(*gap) for gap in gaps))
    longest = max(later - earlier for earlier, later in zip(world.link.sent_at, world.link.sent_at[1:], strict=False))
    assert longest <= DEFAULT_HEARTBEAT_S + 0.001


def idle_world(world, idle_call_s):
    world.service = Service(world.link, HELLO, BUDGET, 2 * BUDGET, Snapshots(4, 1000), idle_call_s)
    return world


def test_a_worker_without_work_makes_a_short_call_now_and_then(world):
    quiet = [[]] * 4  # up to a beat each, but for the first
    said = idle_world(world, 1.0).run(*quiet, [work("a", 3)], *quiet)
    assert world.engine.calls == [[SHORT_CALL_TOKENS], [3], [SHORT_CALL_TOKENS]]
    assert [type(message) for message in said] == [Ready, Started, Result, Drain, Bye]  # nobody is told of them
    assert world.service._reports._batches_done == 1


def test_a_worker_that_never_rests_makes_no_call_of_its_own(world):
    busy = [world.after(0.3, work(f"r{number}", 3)) for number in range(10)]
    idle_world(world, 1.0).run(*busy)
    assert world.engine.calls == [[3]] * 10


def test_without_idle_calls_a_worker_rests(world):
    idle_world(world, 0.0).run(*[[]] * 50)
    assert world.engine.calls == []
