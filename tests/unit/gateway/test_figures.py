"""What all gateways say together: each worker once, and every request once."""

from dataclasses import replace

import pytest

from ostraka_gateway import hearing
from ostraka_gateway.figures import GatewayFigures, decode, describe_workers, encode, merge
from ostraka_gateway.roster import Roster
from ostraka_shared.messages import Beat, Hello, Ready, Started


def seen(name, *workers, incarnation=1, requests=1, state="ready"):
    """A gateway that has asked each of the workers for so many requests of 10 tokens."""
    roster = Roster("c", "f", 0.0)
    for each in workers:
        worker = roster.join(each.encode(), Hello("c", each, incarnation, "f", "h", 7, (0,)), 0.0)
        hearing.ready(worker, Ready("fake 1", 512, 350.0))
        for number in range(requests):
            worker.hold(str(number), 10, 1)
        hearing.beat(
            worker, Beat(4, 40, batches_done=9, batched_requests=3, dropped_frames=2, rss_bytes=1000, snapshots_kept=5)
        )
    return GatewayFigures(
        name, 1, state, len(workers), 2, 20, requests * len(workers), dict(roster.restarts), describe_workers(roster)
    )


def test_what_is_asked_of_a_worker_is_added_up_and_what_it_says_is_taken_once():
    found = merge([seen("gateway", "w0", "w1"), seen("gateway1", "w0", "w1", requests=2)])
    assert [worker.worker for worker in found.workers] == ["w0", "w1"]
    for worker in found.workers:
        assert (worker.in_flight_requests, worker.in_flight_tokens) == (3, 30)
        assert (worker.batches_done, worker.batched_requests, worker.rss_bytes) == (9, 3, 1000)
        assert (worker.queued_tokens, worker.dropped_frames, worker.snapshots["kept"]) == (40, 2, 5)
    assert (found.queued_requests, found.queued_tokens, found.in_flight_requests) == (4, 40, 6)
    assert [gateway.gateway for gateway in found.gateways] == ["gateway", "gateway1"]


def test_a_worker_that_one_gateway_does_not_trust_is_shown_so():
    doubting = seen("gateway1", "w0")
    doubting = replace(doubting, workers=(replace(doubting.workers[0], state="suspect"),))
    assert merge([seen("gateway", "w0"), doubting]).workers[0].state == "suspect"


def test_a_worker_that_was_just_replaced_is_the_new_one():
    found = merge([seen("gateway", "w0"), seen("gateway1", "w0", incarnation=2)])
    assert [(worker.incarnation, worker.in_flight_requests) for worker in found.workers] == [(2, 1)]


def test_restarts_are_those_of_the_gateway_that_has_seen_most():
    found = merge(
        [replace(seen("gateway"), restarts={"w0": 1}), replace(seen("gateway1"), restarts={"w0": 3, "w1": 1})]
    )
    assert found.restarts == {"w0": 3, "w1": 1}


@pytest.mark.parametrize(
    ("states", "state"),
    [
        (("draining", "ready"), "ready"),
        (("starting", "ready"), "ready"),
        (("draining", "starting"), "starting"),
        (("draining", "draining"), "draining"),
    ],
)
def test_the_cluster_is_as_its_best_gateway(states, state):
    gateways = [seen(f"gateway{number}", state=each) for number, each in enumerate(states)]
    assert merge(gateways).state == state


def test_speed_and_cost_are_from_who_has_measured():
    roster = Roster("c", "f", 0.0)
    worker = roster.join(b"w0", Hello("c", "w0", 1, "f", "h", 7, (0,)), 0.0)
    hearing.ready(worker, Ready("fake 1", 512, 350.0))
    hearing.started(worker, Started((), 100))
    hearing.heard(worker, roster.pace, 0.1)
    measured = replace(seen("gateway1"), workers=describe_workers(roster))
    (found,) = merge([seen("gateway", "w0"), measured]).workers
    assert found.tokens_per_s == measured.workers[0].tokens_per_s > 0
    assert found.terms_s == measured.workers[0].terms_s


def test_it_comes_back_from_its_bytes_and_nothing_else_does():
    figures = seen("gateway", "w0")
    assert decode(encode(figures)) == figures
    for bad in (b"", encode(figures)[:-1], b"[]", b'{"gateway": 3}'):
        assert decode(bad) is None
