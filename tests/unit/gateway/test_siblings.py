"""Over real sockets: who answers is counted in, who does not is named."""

import asyncio
import os
import socket

import pytest

from ostraka_gateway.figures import GatewayFigures
from ostraka_gateway.siblings import Siblings


def figures(name, requests):
    return GatewayFigures(name, os.getpid(), "ready", 2, requests, 10, requests, {}, ())


@pytest.fixture
def paths(tmp_path):
    return {name: f"{tmp_path}/{name}" for name in ("mine", "yours", "theirs")}


async def test_each_answers_as_it_is_now(paths):
    counts = iter([5, 6])
    yours = Siblings(paths["yours"], {})
    await yours.start(lambda: figures("yours", next(counts)))
    mine = Siblings(paths["mine"], {"yours": paths["yours"]})
    assert [(await mine.ask(figures("mine", 1))).in_flight_requests for _ in range(2)] == [6, 7]
    yours.stop()


async def test_who_is_gone_hangs_or_talks_nonsense_is_named_and_the_others_count(paths):
    garbage = await asyncio.start_unix_server(lambda _, writer: (writer.write(b"?"), writer.close()), paths["yours"])
    with socket.socket(socket.AF_UNIX) as hung:
        hung.bind(paths["theirs"])
        hung.listen()
        mine = Siblings("", {"gone": "/nowhere", "theirs": paths["theirs"], "yours": paths["yours"]})
        found = await mine.ask(figures("mine", 1))
    assert (found.silent, found.in_flight_requests, found.state) == (("gone", "theirs", "yours"), 1, "ready")
    garbage.close()


async def test_who_is_alone_asks_nobody():
    assert (await Siblings("", {}).ask(figures("mine", 3))).in_flight_requests == 3


async def test_a_successor_takes_the_place_of_one_that_was_killed(paths):
    with socket.socket(socket.AF_UNIX) as killed:
        killed.bind(paths["yours"])
    yours = Siblings(paths["yours"], {})
    await yours.start(lambda: figures("yours", 2))
    assert (await Siblings("", {"yours": paths["yours"]}).ask(figures("mine", 1))).silent == ()
    yours.stop()
