"""Which signal is a stop's beginning, which its end, and which the same one again."""

import signal

import pytest

from ostraka.stopping import SECOND_SIGNAL_S, WORKERS_LEAVE_S, Stopping, Wish

NOW = 1000.0
GRACE_S = 25.0


@pytest.mark.parametrize(
    ("not_ready_s", "number", "is_serving", "wish"),
    [
        (5.0, signal.SIGTERM, True, Wish.ANNOUNCE),
        (5.0, signal.SIGTERM, False, Wish.DRAIN_GATEWAYS),
        (0.0, signal.SIGTERM, True, Wish.DRAIN_GATEWAYS),
        (5.0, signal.SIGINT, True, Wish.DRAIN_GATEWAYS),
        (5.0, signal.SIGHUP, True, Wish.DRAIN_GATEWAYS),
    ],
)
def test_only_who_serves_and_may_be_looked_at_says_it_first(not_ready_s, number, is_serving, wish):
    assert Stopping(GRACE_S, not_ready_s).signalled(number, NOW, is_serving=is_serving) is wish


def test_the_second_counts_when_it_comes_clearly_later_than_the_first():
    stopping = Stopping(GRACE_S, 5.0)
    stopping.signalled(signal.SIGTERM, NOW, is_serving=True)
    told = [stopping.signalled(signal.SIGINT, NOW + after, is_serving=False) for after in (0.0, 0.6, SECOND_SIGNAL_S)]
    assert told == [None, None, Wish.KILL]


def test_the_first_signal_after_a_stop_of_its_own_is_the_second_word():
    stopping = Stopping(GRACE_S, 5.0)
    stopping.drain(NOW)
    assert stopping.signalled(signal.SIGTERM, NOW + 2 * SECOND_SIGNAL_S, is_serving=False) is Wish.KILL


def test_one_thing_comes_after_the_other():
    stopping = Stopping(GRACE_S, 5.0)
    assert stopping.signalled(signal.SIGTERM, NOW, is_serving=True) is Wish.ANNOUNCE
    assert (stopping.is_up, stopping.due) == (True, NOW + 5.0)
    assert stopping.turn(NOW + 4.9, has_gateway=True) is None
    assert stopping.turn(NOW + 5.0, has_gateway=True) is Wish.DRAIN_GATEWAYS
    assert (stopping.is_up, stopping.due) == (False, NOW + 5.0 + GRACE_S)
    assert stopping.turn(NOW + 6.0, has_gateway=True) is None
    assert stopping.turn(NOW + 7.0, has_gateway=False) is Wish.DRAIN_WORKERS
    assert stopping.turn(NOW + 8.0, has_gateway=False) is None
    assert stopping.turn(NOW + 7.0 + WORKERS_LEAVE_S, has_gateway=False) is Wish.KILL_WORKERS
    assert stopping.due == NOW + 5.0 + GRACE_S
    assert stopping.turn(stopping.due, has_gateway=False) is Wish.OVERDUE
    assert stopping.turn(NOW + 1000.0, has_gateway=False) is None


def test_workers_have_no_more_than_what_is_left_of_the_grace_period():
    stopping = Stopping(GRACE_S, 0.0)
    stopping.drain(NOW)
    assert stopping.turn(NOW + GRACE_S - 1.0, has_gateway=False) is Wish.DRAIN_WORKERS
    assert stopping.turn(NOW + GRACE_S, has_gateway=False) is Wish.OVERDUE
