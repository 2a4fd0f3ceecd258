"""A worker and its gateways: one that forgot it, one whose link is cut, and two at once."""

import pytest

from ostraka_shared.messages import Beat, Bye, Cancel, Drain, Refused, Started, Welcome
from ostraka_worker.service import Service
from ostraka_worker.snapshots import Snapshots
from tests.unit.worker.serving import (
    BUDGET,
    END,
    HELLO,
    READY,
    UNKNOWN,
    FakeLink,
    failures,
    make_world,
    results,
    work,
)


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


def test_a_gateway_that_forgot_it_is_not_answered_what_the_old_one_asked(world):
    said = world.run([work("a", *[100] * 50)], [UNKNOWN, work("b", 2)])
    assert world.engine.calls == [[100], [2]]
    assert [each.request_id for each in results(said)] == ["b"]


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
    world = make_world(monkeypatch)
    world.link = TwoLinks(world.clock)
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
