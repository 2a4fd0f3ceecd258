from collections import deque
from dataclasses import dataclass, field

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ostraka_shared.messages import (
    Beat,
    Bye,
    Cancel,
    Drain,
    Failed,
    Hello,
    Ready,
    Refused,
    Result,
    Started,
    Welcome,
    Work,
)
from ostraka_worker import hearing, service
from ostraka_worker.fake_engine import FakeEngine
from ostraka_worker.reports import DEFAULT_HEARTBEAT_S
from ostraka_worker.service import SHORT_CALL_TOKENS, WARM_UP_SHAPES, Service
from ostraka_worker.snapshots import Snapshots
from tests.clocks import FakeClock
from tests.works import expected

HELLO = Hello("cluster", "w0", 3, "print", "host", 123, (0,))
FAIL, NAN = 900, 901
BUDGET = 16
UNKNOWN = Refused("unknown_worker", "say HELLO first")


def work(name, *lengths, prefix=0, attempt=1, deadline_ms=60_000, token=1):
    suffixes = tuple(np.full(length, token, "<u4").tobytes() for length in lengths)
    return Work(name, attempt, deadline_ms, np.full(prefix, 7, "<u4").tobytes(), suffixes)


@dataclass
class FakeLink:
    """Each `receive` takes the next step of `script`: messages, or a function that gives them. After the last step, and
    once the worker has nothing to do, the gateway says DRAIN. `waits` are the timeouts asked for; one that finds nothing lets its time pass."""

    clock: FakeClock
    script: deque = field(default_factory=deque)
    sent: list = field(default_factory=list)
    sent_at: list = field(default_factory=list)
    waits: list = field(default_factory=list)
    dropped_frames: int = 0
    is_cut: bool = False

    def __len__(self):
        return 1

    def send(self, gateway, message):
        assert gateway == 0
        self.sent.append(message)
        self.sent_at.append(self.clock.now)
        return True

    def receive(self, timeout_s):
        self.waits.append(timeout_s)
        if not self.script and not timeout_s:
            return []
        step = self.script.popleft() if self.script else [Drain()]
        messages = step() if callable(step) else step
        if not messages:
            self.clock.advance(timeout_s)
        return [(0, message) for message in messages]

    def cut(self):
        was_cut, self.is_cut = self.is_cut, False
        return [0] if was_cut else []

    @property
    def said(self):
        """All but beats: those follow the clock."""
        return [message for message in self.sent if not isinstance(message, Beat)]


class TimedEngine(FakeEngine):
    """A token takes a millisecond."""

    def __init__(self, clock):
        super().__init__({"fail_on_token": FAIL, "nan_on_token": NAN})
        self.clock = clock
        self.calls = []

    def run(self, prompts):
        self.calls.append([len(each.tokens) for each in prompts])
        self.clock.advance(sum(self.calls[-1]) / 1000)
        return super().run(prompts)


class World:
    def __init__(self, clock):
        self.clock = clock
        self.link = FakeLink(clock)
        self.engine = TimedEngine(clock)
        self.service = Service(
            self.link, HELLO, batch_tokens=BUDGET, credit_tokens=2 * BUDGET, snapshots=Snapshots(4, 1000)
        )

    def run(self, *script):
        """The service's whole life; the steps are what `receive` finds."""
        self.link.script.extend(script)
        self.service.load(lambda: self.engine)
        self.service.run()
        return self.link.said

    def after(self, seconds, *messages):
        """A step: `messages` come after so long."""

        def arrive():
            self.clock.advance(seconds)
            return list(messages)

        return arrive


@pytest.fixture
def world(monkeypatch):
    return World(FakeClock().install(monkeypatch, service).install(monkeypatch, hearing))


def results(said):
    return [message for message in said if isinstance(message, Result)]


def failures(said):
    return [(message.request_id, message.code) for message in said if isinstance(message, Failed)]


READY = Ready("fake 1", 2 * BUDGET, 0.0)  # these tests do not warm it up
END = [Drain(), Bye("drained")]


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


def test_of_many_refusals_by_a_new_gateway_only_the_first_is_answered_until_it_welcomes(world):
    said = world.run([UNKNOWN, UNKNOWN], [UNKNOWN], [Welcome(500)], [UNKNOWN], [Welcome(500)])
    assert said.count(HELLO) == 2


@pytest.mark.parametrize("is_registering", [False, True])
def test_a_cut_link_has_it_say_hello_anew_and_drop_what_it_held(world, is_registering):
    """Also while it waits for WELCOME: that HELLO may have been lost with the link."""

    def cut():
        world.link.is_cut = True
        return [work("b", 16)]

    first = [work("a", 16), *([UNKNOWN] if is_registering else [])]
    said = world.run(first, cut, [work("c", 4)])
    assert said.count(HELLO) == 1 + is_registering
    assert [each.request_id for each in results(said)] == (["c"] if is_registering else ["a", "c"])


def test_an_engine_that_cannot_load_is_not_hidden(world):
    with pytest.raises(RuntimeError, match="no model"):
        world.service.load(lambda: FakeEngine({"fail_to_load": "no model"}))


def test_ready_then_drained(world):
    assert world.run() == [READY, *END]


def test_one_request(world):
    each = work("a", 3, 5, prefix=2)
    said = world.run([each])
    assert said[:2] == [READY, Started(("a",), 12)]  # a prefix too short to be read apart
    assert said[2] == Result("a", 1, expected(each), 0.0, pytest.approx(12.0))
    assert said[3:] == END


def test_the_attempt_is_given_back(world):
    (result,) = results(world.run([work("a", 3, attempt=7)]))
    assert result.attempt == 7


def test_waiting_requests_share_a_call_in_order(world):
    works = [work("a", 5), work("b", 4, token=2), work("c", 7, token=3), work("d", 1)]
    said = world.run(works)
    assert said[1] == Started(("b", "a", "c"), 16)  # within a call from short to long
    assert [(each.request_id, each.p_yes) for each in said[2:5]] == [(w.request_id, expected(w)) for w in works[:3]]
    assert said[5] == Started(("d",), 1)
    assert results(said)[3].queue_ms == pytest.approx(16.0)


def test_queue_time_is_from_receipt_to_the_first_call(world):
    found = results(world.run([work("a", 16)], [], world.after(0.004, work("b", 16), work("c", 16)), []))
    assert [each.queue_ms for each in found] == pytest.approx([0.0, 0.0, 16.0])
    assert [each.inference_ms for each in found] == pytest.approx([16.0, 16.0, 16.0])


def test_a_large_request_is_read_in_calls_each_announced(world):
    each = work("a", 10, 10, 20)
    said = world.run([each])
    assert said[1:4] == [Started(("a",), 10), Started(("a",), 10), Started(("a",), 20)]
    assert said[4] == Result("a", 1, expected(each), 0.0, pytest.approx(40.0))


def test_between_the_calls_of_a_large_request_it_hears_and_beats(world):
    late = work("b", 2)
    said = world.run([work("a", 300, 350)], [late])
    kinds = [type(message) for message in world.link.sent]
    assert kinds[:4] == [Ready, Started, Beat, Started]
    assert [each.tokens for each in said if isinstance(each, Started)] == [150, 2, 175, 150, 175]  # pieces of both
    assert [each.request_id for each in results(said)] == ["b", "a"], "a short one waits for one call at most"
    assert (results(said)[0].queue_ms, results(said)[0].inference_ms) == pytest.approx((0.0, 2.0))
    assert results(said)[1].inference_ms == pytest.approx(650.0)  # its own calls alone


def test_a_beat_between_calls_says_what_waits(world):
    world.run([work("a", 600, 700), work("b", 2), work("c", 16)], [], [])
    (beat, *_) = (message for message in world.link.sent if isinstance(message, Beat))
    assert (beat.queued_requests, beat.queued_tokens) == (2, 1316), "the short ones were begun first"


def test_what_is_cancelled_while_it_waits_is_not_run(world):
    said = world.run([work("a", 16), work("b", 4), Cancel("b", 1), Cancel("a", 9), Cancel("unknown", 1)])
    assert failures(said) == [("b", "cancelled")]
    assert world.engine.calls == [[16]]


def test_a_large_request_stops_at_the_call_after_it_was_cancelled(world):
    said = world.run([work("a", *[100] * 50)], [], [Cancel("a", 1), work("b", 2)])
    assert world.engine.calls == [[100], [100], [2]]
    assert failures(said) == [("a", "cancelled")]
    assert [each.request_id for each in results(said)] == ["b"]


def test_an_answer_on_its_way_cannot_be_cancelled(world):
    said = world.run([work("a", 16)], [Cancel("a", 1)])
    assert failures(said) == []
    assert [each.request_id for each in results(said)] == ["a"]


def test_a_gateway_that_forgot_it_is_not_answered_what_the_old_one_asked(world):
    said = world.run([work("a", *[100] * 50)], [UNKNOWN, work("b", 2)])
    assert world.engine.calls == [[100], [2]]
    assert [each.request_id for each in results(said)] == ["b"]


def test_it_never_waits_while_something_is_queued(world):
    world.run([work(name, 16) for name in "abc"], [], [])
    assert world.link.waits[1:3] == [0.0, 0.0]


def test_a_failing_request_fails_alone(world):
    works = [work("a", 3), work("b", 3, token=FAIL), work("c", 3, token=2), work("d", 3, token=NAN)]
    said = world.run(works)
    assert failures(said) == [("b", "engine_failed"), ("d", "engine_failed")]
    assert [(each.request_id, each.p_yes) for each in results(said)] == [
        ("a", expected(works[0])),
        ("c", expected(works[2])),
    ]
    assert [message.request_id for message in said if isinstance(message, (Result, Failed))] == ["a", "b", "c", "d"]


def test_a_logit_that_is_no_number_is_a_failure(world):
    assert failures(world.run([work("a", 3, token=NAN)])) == [("a", "engine_failed")]
    assert results(world.link.said) == []


def test_it_serves_on_after_a_failure(world):
    assert [each.request_id for each in results(world.run([work("a", 3, token=FAIL)], [work("b", 3)]))] == ["b"]


def test_expired_work_is_answered_but_not_run(world):
    said = world.run([work("a", 16), work("b", 4, deadline_ms=16), work("c", 5, deadline_ms=17)])
    assert failures(said) == [("b", "deadline_exceeded")]
    assert [each.request_id for each in results(said)] == ["a", "c"]
    assert world.engine.calls == [[16], [5]]  # c would have shared a call with b


def test_a_large_request_is_given_up_between_calls_once_nobody_waits(world):
    said = world.run([work("a", *[100] * 50, deadline_ms=250)], [work("b", 2)])
    assert len([message for message in said if isinstance(message, Started)]) == 3 + 1
    assert failures(said) == [("a", "deadline_exceeded")]
    assert [each.request_id for each in results(said)] == ["b"]


def test_what_was_paid_for_is_answered_even_after_the_deadline(world):
    """The gateway's clock decides; this one only saves work not yet done."""
    assert failures(world.run([work("a", 100, deadline_ms=50)])) == []
    assert len(results(world.link.said)) == 1


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


def test_refused_for_good_it_leaves_without_a_bye(world):
    refusal = Refused("wrong_model", "another fingerprint")
    assert world.run([], [refusal]) == [READY]
    assert world.service.refusal == refusal


def test_a_gateway_that_forgot_it_is_told_again_and_old_work_is_dropped(world):
    said = world.run([work("a", 16), work("b", 16)], [UNKNOWN, work("c", 4)])
    assert said == [
        READY,
        Started(("a",), 16),
        results(said)[0],
        HELLO,
        READY,
        Started(("c",), 4),
        results(said)[1],
        *END,
    ]
    assert [each.request_id for each in results(said)] == ["a", "c"]


def test_a_gateway_that_forgot_a_draining_worker_hears_that_it_drains(world):
    """Else it would be given new work just before its BYE."""
    said = world.run([Drain()], [work("a", 10, 10)], [UNKNOWN])
    again = said[said.index(HELLO) :]
    assert again[:3] == [HELLO, READY, Drain()]
    assert said[-1] == Bye("drained")


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
        world = World(FakeClock().install(monkeypatch, service).install(monkeypatch, hearing))

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


STEP = st.lists(
    st.builds(
        lambda name, lengths, prefix, deadline_ms, token: work(
            name, *lengths, prefix=prefix, deadline_ms=deadline_ms, token=token
        ),
        st.uuids().map(str),
        st.lists(st.integers(1, 12), min_size=1, max_size=4),
        st.integers(0, 6),
        st.integers(1, 200),
        st.sampled_from([1, 2, 3, FAIL, NAN]),
    ),
    max_size=4,
)


@given(st.lists(STEP, max_size=8))
@settings(max_examples=50)
def test_every_request_is_answered_exactly_once_and_rightly(steps):
    with pytest.MonkeyPatch.context() as monkeypatch:
        world = World(FakeClock().install(monkeypatch, service).install(monkeypatch, hearing))
        said = world.run(*steps)
    works = [each for step in steps for each in step]
    answers = [message for message in said if isinstance(message, (Result, Failed))]
    assert sorted(each.request_id for each in answers) == sorted(each.request_id for each in works)
    by_id = {each.request_id: each for each in answers}
    for each in works:
        answer = by_id[each.request_id]
        if isinstance(answer, Result):
            assert answer.p_yes == expected(each)
        else:
            is_bad = int.from_bytes(each.suffixes[0][:4], "little") in (FAIL, NAN)
            assert answer.code == "deadline_exceeded" or (is_bad and answer.code == "engine_failed")
    order = [each.request_id for each in results(said)]
    for is_long in (False, True):
        line = [each.request_id for each in works if (each.tokens > BUDGET) is is_long and each.request_id in order]
        assert [name for name in order if name in line] == line
    assert said[0] == READY
    assert said[-1] == Bye("drained")
    for place, message in enumerate(said):  # each result had its STARTED before it
        if isinstance(message, Result):
            assert any(isinstance(s, Started) and message.request_id in s.request_ids for s in said[:place])


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


class TwoLinks(FakeLink):
    """Steps are pairs of gateway and message; `sent` likewise."""

    def __len__(self):
        return 2

    def send(self, gateway, message):
        self.sent.append((gateway, message))
        return True

    def receive(self, timeout_s):
        found = [each for _, each in super().receive(timeout_s)]
        return [each if isinstance(each, tuple) else (0, each) for each in found]

    def cut(self):
        was_cut, self.is_cut = self.is_cut, False
        return [1] if was_cut else []

    def said_to(self, gateway):
        return [each for at, each in self.sent if at == gateway and not isinstance(each, Beat)]


@pytest.fixture
def pair(monkeypatch):
    clock = FakeClock().install(monkeypatch, service).install(monkeypatch, hearing)
    world = World(clock)
    world.link = TwoLinks(clock)
    world.service = Service(world.link, HELLO, BUDGET, 2 * BUDGET, Snapshots(4, 1000))
    return world


def run_pair(pair, *script):
    pair.link.script.extend(script)
    pair.service.introduce()
    pair.service.load(lambda: pair.engine)
    pair.service.run()
    return pair.link.said_to(0), pair.link.said_to(1)


def test_each_gateway_is_answered_its_own_and_told_of_every_call(pair):
    """The same id is two requests; each gateway knows how long a call takes that it waits for."""
    mine, others = run_pair(pair, [(0, work("a", 4)), (1, work("a", 5))], [])
    ended = Started((), 0)
    assert [mine[:3], others[:3]] == [[HELLO, READY, Started(("a",), 9, 5)], [HELLO, READY, Started(("a",), 9, 4)]]
    assert [len(results(said)) for said in (mine, others)] == [1, 1]
    assert mine[4:] == others[4:] == [ended, *END]


def test_a_gateway_that_only_waits_hears_when_the_call_begins_and_ends(pair):
    _, others = run_pair(pair, [(0, work("a", 4))], [])
    assert others[2:] == [Started((), 4, 4), Started((), 0), *END]


def test_a_call_that_follows_at_once_tells_the_end_of_the_one_before(pair):
    _, others = run_pair(pair, [(0, work("a", 10)), (0, work("b", 10)), (0, work("c", 10))], [])
    assert others[2:] == [*(Started((), 10, held) for held in (30, 20, 10)), Started((), 0), *END]


def test_a_gateway_whose_link_is_cut_loses_only_its_own(pair):
    def cut():
        pair.link.is_cut = True
        return [(0, work("a", 20)), (1, work("b", 20))]

    mine, others = run_pair(pair, cut, [], [])
    assert [each.request_id for each in results(mine)] == ["a"]
    assert results(others) == failures(others) == []
    assert others[:5] == [HELLO, READY, HELLO, READY, Started((), 20, 20)]
    assert HELLO not in mine[1:]


def test_a_gateway_that_starts_anew_is_told_who_this_is_and_the_other_is_not_disturbed(pair):
    mine, others = run_pair(pair, [(1, work("b", 4)), (1, UNKNOWN), (1, UNKNOWN), (0, work("a", 4))], [])
    assert [each.request_id for each in results(mine)] == ["a"]
    assert others.count(HELLO) == 2
    assert results(others) == []


def test_a_cancel_is_for_the_gateway_that_says_it(pair):
    mine, others = run_pair(pair, [(0, work("a", 4)), (1, work("a", 4)), (1, Cancel("a", 1))], [])
    assert [failures(mine), failures(others)] == [[], [("a", "cancelled")]]
    assert len(results(mine)) == 1


def test_it_leaves_when_the_last_gateway_refuses_it(pair):
    no = Refused("wrong_model", "another fingerprint")
    mine, others = run_pair(pair, [(1, no), (0, work("a", 4))], [], [(0, no)])
    assert len(results(mine)) == 1
    assert others == [HELLO, READY]
    assert pair.service.refusal == no
