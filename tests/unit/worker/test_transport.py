"""Over a real socket: what the fake link of the service's tests promises."""

import os
import signal
import threading
import time

import pytest
import zmq
from structlog.testing import capture_logs

from ostraka_shared.codec import decode, encode
from ostraka_shared.messages import Bye, Drain, Welcome, Work
from ostraka_worker import transport
from ostraka_worker.transport import HIGH_WATER_MARK, GatewayLinks
from tests.waiting import wait_until


@pytest.fixture
def endpoint(tmp_path):
    return f"ipc://{tmp_path}/s"


@pytest.fixture
def router(endpoint):
    with zmq.Context() as context, context.socket(zmq.ROUTER) as socket:
        socket.setsockopt(zmq.LINGER, 0)
        socket.setsockopt(zmq.ROUTER_MANDATORY, 1)
        socket.setsockopt(zmq.RCVTIMEO, 10_000)
        socket.bind(endpoint)
        yield socket


@pytest.fixture
def link(endpoint, router):
    link = GatewayLinks([endpoint], "w0.3")
    yield link
    link.close()


@pytest.fixture
def greeted(link, router):
    """The router can reach the worker once it has heard from it."""
    assert link.send(0, Bye("hello"))
    assert router.recv_multipart()[0] == b"w0.3"
    return link


def receive(link, count):
    found = []
    wait_until(lambda: found.extend(message for _, message in link.receive(0.1)) or len(found) >= count)
    return found


def test_what_is_sent_arrives_under_the_identity(link, router):
    assert link.send(0, Bye("drained"))
    identity, frame = router.recv_multipart()
    assert identity == b"w0.3"
    assert decode(frame) == Bye("drained")


def test_what_is_sent_before_the_gateway_is_there_arrives_when_it_is(endpoint):
    link = GatewayLinks([endpoint], "w0.1")
    assert link.send(0, Bye("early"))
    with zmq.Context() as context, context.socket(zmq.ROUTER) as router:
        router.setsockopt(zmq.RCVTIMEO, 10_000)
        router.bind(endpoint)
        assert decode(router.recv_multipart()[1]) == Bye("early")
        link.close()


def test_messages_come_in_order(greeted, router):
    sent = [Welcome(n) for n in range(50)]
    for message in sent:
        router.send_multipart((b"w0.3", encode(message)))
    assert receive(greeted, 50) == sent


def test_nothing_has_arrived(link):
    assert link.receive(0.0) == []
    assert link.receive(0.001) == []
    assert link.receive(-1.0) == []


def test_bad_frames_are_counted_logged_once_and_the_good_ones_behind_them_taken(greeted, router):
    with capture_logs() as lines:
        send_bad_frames(router)
        assert receive(greeted, 1) == [Drain()]
    assert greeted.dropped_frames == 5
    assert [line["reason"] for line in lines] == ["garbage", "wrong_version"]


def send_bad_frames(router):
    for payload in ([b"\xff"], [encode(Drain()), b""], [b""], [encode(Drain())[:-1]], [b"\x81\xa1v\xcc\x09"]):
        router.send_multipart([b"w0.3", *payload])
    router.send_multipart((b"w0.3", encode(Drain())))


def test_a_large_message_arrives(greeted, router):
    work = Work("r", 1, 1, b"\0" * 8_000_000, (b"abcd",))
    router.send_multipart((b"w0.3", encode(work)))
    assert receive(greeted, 1) == [work]


def test_a_gateway_that_is_away_too_long_is_no_longer_written_to(endpoint):
    link = GatewayLinks([endpoint], "w0.1")
    sent = 0
    while link.send(0, Welcome(sent)) and sent < 3 * HIGH_WATER_MARK:
        sent += 1
    link.close()
    assert HIGH_WATER_MARK <= sent < 3 * HIGH_WATER_MARK


def test_a_link_that_ends_is_told_once_and_dialled_again(greeted, router, endpoint):
    assert not greeted.cut()
    router.close()
    wait_until(lambda: greeted.receive(0.1) == [] and greeted.cut())
    assert not greeted.cut()
    greeted.send(0, Bye("again"))
    with zmq.Context() as context, context.socket(zmq.ROUTER) as next_router:
        next_router.setsockopt(zmq.RCVTIMEO, 10_000)
        next_router.bind(endpoint)
        assert decode(next_router.recv_multipart()[1]) == Bye("again")
    greeted.cut()


def test_the_links_end_interrupts_a_wait(greeted, router):
    router.close()
    begun = time.monotonic()
    wait_until(lambda: greeted.receive(30.0) == [] and greeted.cut())
    assert time.monotonic() - begun < 10


def signal_ourselves():
    os.kill(os.getpid(), signal.SIGUSR1)


@pytest.mark.parametrize("tell", [signal_ourselves, threading.Thread(target=signal_ourselves).start])
def test_a_signal_ends_the_wait_that_follows_or_is_under_way_and_no_other(greeted, tell):
    greeted.wake_on_signals()
    before = signal.signal(signal.SIGUSR1, lambda *_: None)
    try:
        wait_until(lambda: greeted.cut() == [] and not greeted._poller.poll(0))  # its own news has been heard
        begun = time.monotonic()
        tell()
        assert greeted.receive(30.0) == []
        assert time.monotonic() - begun < 10
        assert not greeted._poller.poll(0)
    finally:
        signal.signal(signal.SIGUSR1, before)


def test_nobody_is_waited_for_who_has_gone(monkeypatch, endpoint, router):
    monkeypatch.setattr(transport, "FLUSH_MS", 20_000)
    link = GatewayLinks([endpoint], "w0.1")
    link.send(0, Bye("hello"))
    router.recv_multipart()
    router.close()
    wait_until(lambda: link.receive(0.1) == [] and link.cut())
    link.send(0, Bye("drained"))
    begun = time.monotonic()
    link.close()
    assert time.monotonic() - begun < 10


def test_closing_flushes_what_was_sent(endpoint, router):
    link = GatewayLinks([endpoint], "w9.1")
    link.send(0, Bye("drained"))
    link.close()
    assert decode(router.recv_multipart()[1]) == Bye("drained")


def test_a_second_worker_with_the_same_identity_does_not_take_over(greeted, router, endpoint):
    other = GatewayLinks([endpoint], "w0.3")
    other.send(0, Bye("the other"))
    greeted.send(0, Bye("the first"))
    assert decode(router.recv_multipart()[1]) == Bye("the first")
    router.send_multipart((b"w0.3", encode(Drain())))
    assert receive(greeted, 1) == [Drain()]
    other.close()
