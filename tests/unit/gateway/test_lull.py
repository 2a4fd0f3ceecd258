"""How often, and how long, the gateway looks away from its clients while it refuses; and never from its workers."""

import asyncio
import time

import pytest
import zmq

from ostraka_gateway.lull import PATIENT_S, REST_S, Lull
from ostraka_gateway.transport import WorkerSocket
from ostraka_shared.codec import encode
from ostraka_shared.messages import Bye, Drain
from tests.waiting import let_run

FAR_S = 60.0
SOON_S = 20.0


async def test_it_rests_once_for_all_that_were_refused_in_a_turn():
    rests = []
    lull = Lull(rests.append)
    for _ in range(3):
        lull.follow(2.0)
    assert rests == [], "their answers have not left"
    await let_run()
    assert rests == [REST_S]
    lull.follow(PATIENT_S)
    await let_run()
    assert rests == [REST_S] * 2


async def test_a_short_deadline_is_no_reason():
    rests = []
    Lull(rests.append).follow(PATIENT_S / 2)
    await let_run()
    assert rests == []


async def test_whoever_arrived_in_the_same_turn_comes_first():
    done = []

    async def answer():
        done.append("answer")

    Lull(lambda _: done.append("rest")).follow(2.0)
    beside = asyncio.create_task(answer())
    await let_run()
    assert beside.done()
    assert done == ["answer", "rest"]


@pytest.fixture
async def link(tmp_path):
    """A gateway's socket, what it heard, and a worker's end."""
    heard = []
    socket = WorkerSocket(lambda _, message: heard.append(message), None)
    socket.bind(f"ipc://{tmp_path}/w")
    context = zmq.Context()
    worker = context.socket(zmq.DEALER)
    worker.connect(f"ipc://{tmp_path}/w")
    yield socket, heard, worker
    worker.close(linger=0)
    context.term()
    socket.close()


async def test_what_a_worker_says_ends_it_and_is_heard_next(link):
    socket, heard, worker = link
    begun = time.monotonic()
    for number, said in enumerate((Drain(), Bye("drained")), 1):
        worker.send(encode(said))
        while len(heard) < number:  # each message that ZeroMQ exchanges to make the link ends one too
            socket.await_message(FAR_S)
            await let_run(2)
    assert heard == [Drain(), Bye("drained")]
    assert time.monotonic() - begun < SOON_S


async def test_nor_is_it_missed_where_the_signal_of_it_was_used_up(link):
    socket, heard, worker = link
    worker.send(encode(Bye("drained")))
    begun = time.monotonic()
    while not socket._has_arrived():  # as a message that is being sent asks
        assert time.monotonic() - begun < SOON_S
    socket.await_message(FAR_S)
    await let_run(2)
    assert heard == [Bye("drained")]
    assert time.monotonic() - begun < SOON_S


async def test_whoever_a_message_has_just_woken_has_his_turn_first(link):
    socket, heard, worker = link
    worker.send(encode(Bye("drained")))
    while not heard:  # taken with the loop's own hands: nobody has had a turn since
        socket.take_arrived()
    begun = time.monotonic()
    socket.await_message(FAR_S)
    assert time.monotonic() - begun < SOON_S
    await let_run(2)
    socket.await_message(REST_S)
    assert time.monotonic() - begun >= REST_S, "then it rests again"


async def test_it_ends_without_a_word_too(link):
    socket, heard, _ = link
    begun = time.monotonic()
    socket.await_message(REST_S)
    assert time.monotonic() - begun < SOON_S
    assert heard == []
