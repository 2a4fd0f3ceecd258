"""Which signal is a stop's beginning, which its end, and which the same one again."""

import signal

import pytest

from ostraka.stopping import SECOND_SIGNAL_S, Stopping, Wish

NOW = 1000.0


@pytest.mark.parametrize(
    ("not_ready_s", "number", "is_serving", "wish"),
    [
        (5.0, signal.SIGTERM, True, Wish.ANNOUNCE),
        (5.0, signal.SIGTERM, False, Wish.DRAIN),
        (0.0, signal.SIGTERM, True, Wish.DRAIN),
        (5.0, signal.SIGINT, True, Wish.DRAIN),
        (5.0, signal.SIGHUP, True, Wish.DRAIN),
    ],
)
def test_only_who_serves_and_may_be_looked_at_says_it_first(not_ready_s, number, is_serving, wish):
    assert Stopping(not_ready_s).signalled(number, NOW, is_serving=is_serving) is wish


def test_the_second_counts_when_it_comes_clearly_later_than_the_first():
    stopping = Stopping(5.0)
    stopping.signalled(signal.SIGTERM, NOW, is_serving=True)
    told = [stopping.signalled(signal.SIGINT, NOW + after, is_serving=False) for after in (0.0, 0.6, SECOND_SIGNAL_S)]
    assert told == [Wish.NOTHING, Wish.NOTHING, Wish.KILL]


def test_the_first_signal_after_a_stop_of_its_own_is_the_second_word():
    stopping = Stopping(5.0)
    stopping.begun_without(NOW)
    assert stopping.signalled(signal.SIGTERM, NOW + 2 * SECOND_SIGNAL_S, is_serving=False) is Wish.KILL
