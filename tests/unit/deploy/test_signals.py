import os
import signal

import pytest

from ostraka.signals import TAKEN, taken_signals

STOPS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


def take(signals, count):
    return [signals.wait(10.0) for _ in range(count)]


@pytest.mark.parametrize("number", TAKEN)
def test_a_signal_is_taken_where_it_is_waited_for(number):
    with taken_signals() as signals:
        os.kill(os.getpid(), number)
        assert take(signals, 1) == [number]
        assert signals.wait(0.0) is None


def test_none_is_lost_that_came_before_the_wait():
    with taken_signals() as signals:
        for number in STOPS:
            os.kill(os.getpid(), number)
        assert take(signals, len(STOPS)) == list(STOPS)


@pytest.mark.parametrize("number", STOPS)
def test_what_was_ignored_when_we_started_stays_ignored(number):
    """SIGHUP under nohup; SIGINT in `sh -c '... &'`."""
    before = signal.signal(number, signal.SIG_IGN)
    try:
        with taken_signals() as signals:
            os.kill(os.getpid(), number)
            os.kill(os.getpid(), signal.SIGCHLD)
            assert take(signals, 1) == [signal.SIGCHLD]
        assert signal.getsignal(number) == signal.SIG_IGN
    finally:
        signal.signal(number, before)


def test_a_death_is_told_even_where_sigchld_was_ignored():
    before = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    try:
        with taken_signals() as signals:
            os.kill(os.getpid(), signal.SIGCHLD)
            assert take(signals, 1) == [signal.SIGCHLD]
    finally:
        signal.signal(signal.SIGCHLD, before)


def test_what_was_blocked_when_we_started_is_taken_too():
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
    try:
        with taken_signals() as signals:
            os.kill(os.getpid(), signal.SIGTERM)
            assert take(signals, 1) == [signal.SIGTERM]
        assert signal.SIGTERM in signal.pthread_sigmask(signal.SIG_BLOCK, [])
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def test_afterwards_all_is_as_before():
    handlers = [signal.getsignal(number) for number in TAKEN]
    with taken_signals():
        pass
    assert [signal.getsignal(number) for number in TAKEN] == handlers
    assert signal.set_wakeup_fd(-1) == -1
