"""Whose call is next: by hand, and with any sequence of what may happen."""

import itertools

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from ostraka_shared.reading_rules import LARGEST_SIZE, size_of
from ostraka_worker.fair_line import Waiting
from ostraka_worker.fake_engine import FakeEngine
from ostraka_worker.schedule import Schedule
from ostraka_worker.snapshots import Snapshots
from tests.works import expected, make_work

BUDGET = 16


def schedule():
    return Schedule(BUDGET, Snapshots(0, 0))


def add(to, name, *lengths, deadline=60.0):
    work = make_work([], [[len(name) + 1] * length for length in lengths], name)
    waiting = Waiting(work, 0.0, deadline, work.tokens)
    to.add(waiting)
    return waiting


def turn(of, seconds=1.0):
    """One call, which takes so long. Who it was for, and who is answered after it."""
    running = of.turn(0.0)
    if running is None:
        return None, []
    names = running.request_ids(running.upcoming) if running.upcoming else ()
    if running.upcoming:
        running.run.run(FakeEngine({}), running.upcoming)
        of.ran(running, seconds)
    done = [] if running.upcoming else [each.work.request_id for _, each in of.finish(running)]
    return names, done


def test_a_long_request_and_batches_of_short_ones_take_turns():
    bench = schedule()
    add(bench, "long", 16, 16, 16)
    for name in ("a", "b", "c"):
        add(bench, name, 12)
    turns = [turn(bench) for _ in range(7)]
    called = [names for names, _ in turns]
    assert sorted(called[:2]) == [("a",), ("long",)]
    assert called.count(("long",)) == 3
    assert all(one != other for one, other in itertools.pairwise(called)), "strictly in turns"
    assert [name for _, done in turns for name in done if name != "long"] == ["a", "b", "c"]
    assert bench.is_idle


def test_short_ones_that_wait_have_as_long_as_the_long_one_s_call_took():
    bench = schedule()
    add(bench, "long", 16, 16, 16)
    assert turn(bench, 2.5)[0] == ("long",)
    for name in "abcdefg":
        add(bench, name, 12)
    assert [turn(bench)[0] for _ in range(4)] == [("a",), ("b",), ("c",), ("long",)]
    assert [turn(bench, 0.3)[0] for _ in range(3)] == [("d",), ("e",), ("long",)]
    assert [turn(bench)[0] for _ in range(3)] == [("f",), ("g",), None]


def test_no_more_is_owed_than_the_last_call():
    bench = schedule()
    add(bench, "long", 16, 16, 16)
    assert [turn(bench, 9.0)[0] for _ in range(2)] == [("long",)] * 2
    for name in "abcd":
        add(bench, name, 12)
    assert [turn(bench, 4.0)[0] for _ in range(5)] == [("a",), ("b",), ("c",), ("long",), ("d",)]


def test_a_page_is_read_in_turns_with_a_book():
    bench = schedule()
    add(bench, "book", *[16] * 20)
    assert [turn(bench)[0] for _ in range(3)] == [("book",)] * 3
    add(bench, "page", 16, 16, 16)
    add(bench, "line", 12)
    assert [turn(bench)[0] for _ in range(6)] == [("line",), ("page",), ("page",), ("book",), ("page",), ("book",)]


def test_a_second_request_of_a_size_waits_for_the_first():
    bench = schedule()
    add(bench, "one", 16, 16)
    add(bench, "two", 16, 16)
    assert [turn(bench) for _ in range(5)] == [
        (("one",), []),
        (("one",), ["one"]),
        (("two",), []),
        (("two",), ["two"]),
        (None, []),
    ]


def test_who_is_read_to_the_end_is_answered_though_its_batch_mate_is_cancelled():
    bench = Schedule(100, Snapshots(0, 0))
    add(bench, "a", 2)
    work = make_work([3] * 40, [[5], [6]], "b")
    bench.add(Waiting(work, 0.0, 60.0, 4))  # its prefix is read first, the questions in a second call
    assert turn(bench) == (("a", "b"), [])
    assert bench.cancel("b", 1)
    assert turn(bench) == ((), ["a"])
    assert bench.is_idle


class ScheduleMachine(RuleBasedStateMachine):
    def __init__(self):
        super().__init__()
        self.schedule = schedule()
        self.engine = FakeEngine({})
        self.now = 0.0
        self.open = {}
        self.overtaken = {}
        self.number = 0

    @rule(lengths=st.lists(st.integers(1, 12), min_size=1, max_size=6), deadline_s=st.sampled_from([1.0, 5.0, 1e9]))
    def add(self, lengths, deadline_s):
        self.number += 1
        name = f"r{self.number}"
        self.open[name] = add(self.schedule, name, *lengths, deadline=self.now + deadline_s)
        self.overtaken[name] = 0

    @rule(turns=st.integers(1, 4))
    def work(self, turns):
        for _ in range(turns):
            running = self.schedule.turn(self.now)
            assert (running is None) == (not self.open)
            if running is None:
                return
            if running.upcoming:
                self.count_turns(running)
                assert set(running.request_ids(running.upcoming)) <= set(self.open), "nobody waits for it"
                running.run.run(self.engine, running.upcoming)
                self.schedule.ran(running, 1.0)
            if running.upcoming is None:
                answers = running.run.answers()
                for place, waiting in self.schedule.finish(running):
                    assert answers[place] == expected(waiting.work)
                    self.end(waiting)

    def count_turns(self, running):
        """Calls made for the other sizes while the head of one stood still."""
        sizes = {name: size_of(waiting.tokens, BUDGET) for name, waiting in self.open.items()}
        for size in set(sizes.values()):
            head = next(name for name in sizes if sizes[name] == size)
            self.overtaken[head] = 0 if size == running.size else self.overtaken[head] + 1
            assert self.overtaken[head] <= LARGEST_SIZE, "one call of each other size"

    def end(self, waiting):
        assert self.open.pop(waiting.work.request_id) is waiting

    @precondition(lambda self: self.open)
    @rule(data=st.data())
    def cancel(self, data):
        name = data.draw(st.sampled_from(sorted(self.open)))
        assert self.schedule.cancel(name, 2) is None
        self.end(self.schedule.cancel(name, 1))
        assert self.schedule.cancel(name, 1) is None

    @rule(seconds=st.sampled_from([0.5, 2.0]))
    def time_passes(self, seconds):
        self.now += seconds
        for waiting in self.schedule.expire(self.now):
            assert waiting.deadline <= self.now
            self.end(waiting)

    @rule()
    def clear(self):
        self.schedule.clear()
        self.open = {}

    @invariant()
    def idle_is_when_nobody_waits(self):
        assert self.schedule.is_idle == (not self.open)

    @invariant()
    def the_count_of_what_waits_is_exact(self):
        assert len(self.schedule.waiting) <= len(self.open)
        assert 0 <= self.schedule.waiting.queued_tokens <= sum(waiting.tokens for waiting in self.open.values())


TestScheduleMachine = ScheduleMachine.TestCase
TestScheduleMachine.settings = settings(stateful_step_count=40)
