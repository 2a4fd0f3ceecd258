"""A client that reads nothing is cut off, one that reads slowly never."""

import pytest

from ostraka_gateway.unread_answers import UnreadAnswers


class Timer:
    def __init__(self, loop, call):
        self.loop, self.call = loop, call

    def cancel(self):
        self.loop.timers.remove(self)


class Loop:
    def __init__(self):
        self.timers = []

    def call_later(self, delay_s, call):
        assert delay_s == 10
        self.timers.append(timer := Timer(self, call))
        return timer

    def pass_time(self):
        due, self.timers = self.timers, []
        for timer in due:
            timer.call()


class Transport:
    def __init__(self):
        self.unread_bytes = 0
        self.is_aborted = False

    def get_write_buffer_size(self):
        return self.unread_bytes

    def abort(self):
        self.is_aborted = True


@pytest.fixture
def loop():
    return Loop()


@pytest.fixture
def transport():
    return Transport()


@pytest.fixture
def unread(loop, transport):
    return UnreadAnswers(loop, transport, 10)


def test_what_was_read_is_looked_at_once(unread, loop, transport):
    for _ in range(5):
        unread.count_answer()
    assert len(loop.timers) == 1
    loop.pass_time()
    assert (loop.timers, transport.is_aborted) == ([], False)


def test_a_client_that_reads_nothing_is_cut_off(unread, loop, transport):
    transport.unread_bytes = 100
    unread.watch()
    loop.pass_time()
    assert not transport.is_aborted
    loop.pass_time()
    assert (loop.timers, transport.is_aborted) == ([], True)


def test_one_that_reads_slowly_is_not(unread, loop, transport):
    unread.watch()
    for transport.unread_bytes in (100, 99, 50, 1, 0):
        loop.pass_time()
    assert (loop.timers, transport.is_aborted) == ([], False)


def test_the_next_answer_s_bytes_are_not_taken_for_the_last_one_s(unread, loop, transport):
    for transport.unread_bytes in (100, 200, 300):
        unread.count_answer()
        loop.pass_time()
    assert not transport.is_aborted


def test_what_is_seen_after_all_was_read_is_new(unread, loop, transport):
    for transport.unread_bytes in (100, 0, 100):
        unread.watch()
        loop.pass_time()
    assert not transport.is_aborted


def test_stopped_it_looks_no_more(unread, loop):
    unread.stop()
    unread.watch()
    unread.stop()
    unread.stop()
    assert loop.timers == []
