"""Who may join, whom a newcomer replaces or relieves, whom to wait for."""

import pytest

from ostraka_gateway import hearing
from ostraka_shared.messages import Hello
from tests.unit.gateway.workers import hello, identity, join


def test_a_newer_one_of_the_same_name_and_host_relieves(roster):
    old = join(roster, "w0", 1)
    other = join(roster, "w1", 5)
    assert roster.relieves(hello("w0", 2), old)
    assert not roster.relieves(hello("w0", 1), old)
    assert not roster.relieves(hello("w0", 2), other)
    elsewhere = Hello("c", "w0", 2, "f", "other host", 100, (0,))
    assert not roster.relieves(elsewhere, old)
    new = roster.join(identity("w0", 2), hello("w0", 2), 0.0)
    assert roster.relieved_by(new) == [old]
    assert roster.relieved_by(old) == []


@pytest.mark.parametrize(
    ("said", "code"),
    [
        (hello(cluster="other"), "wrong_cluster"),
        (hello(fingerprint="other"), "wrong_model"),
        (hello(incarnation=2), "stale_incarnation"),
    ],
)
def test_who_must_not_join(roster, said, code):
    join(roster, incarnation=3)
    assert roster.refusal(said).code == code


def test_an_incarnation_is_stale_also_when_the_newer_one_is_gone(roster):
    roster.remove(join(roster, incarnation=3), 1.0)
    assert roster.refusal(hello(incarnation=2)).code == "stale_incarnation"
    assert roster.refusal(hello(incarnation=3)) is None
    assert roster.refusal(hello(name="w1", incarnation=1)) is None


def test_a_newer_incarnation_shows_the_older_to_be_gone(roster):
    older, other = join(roster), join(roster, "w1")
    assert roster.earlier_ones(identity(incarnation=2), hello(incarnation=2)) == [older]
    assert list(roster) == [older, other]


def test_an_identity_that_is_here_already_is_replaced(roster):
    worker = join(roster)
    assert roster.earlier_ones(identity(), hello()) == [worker]
    assert roster.earlier_ones(identity(), hello("w9")) == [worker]


def test_restarts_are_incarnations_above_the_first_seen(roster):
    join(roster, incarnation=5)
    assert roster.restarts == {"w0": 0}
    join(roster, incarnation=5)
    assert roster.restarts == {"w0": 0}
    join(roster, incarnation=6)
    join(roster, incarnation=9)
    assert roster.restarts == {"w0": 2}


def test_whom_to_wait_for(roster):
    assert roster.expects_worker(9.0, 10.0), "a predecessor's workers may come"
    assert not roster.expects_worker(10.0, 10.0)
    worker = join(roster, ready=False)
    assert roster.expects_worker(500.0, 10.0)
    hearing.draining(worker)
    assert not roster.expects_worker(500.0, 10.0)
    roster.remove(worker, 500.0)
    assert roster.expects_worker(509.0, 10.0)
    assert not roster.expects_worker(510.0, 10.0)
