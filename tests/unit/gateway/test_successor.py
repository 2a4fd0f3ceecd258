"""What a successor is given, and that no client is worse off for it."""

import asyncio
import json
import time
from types import SimpleNamespace

import pytest

from ostraka_gateway import successor as successor_module
from ostraka_gateway.metrics import Metrics
from ostraka_gateway.private_client import Received, Unreachable
from ostraka_gateway.shadow import Figures
from ostraka_gateway.successor import Successor, place_of

BODY = json.dumps({"answers": {"q": {"type": "noul", "noul": 0.25}}}).encode()


class FakeClient:
    """`answers` are given in turn: a Received, or what is raised. `asked` is what came."""

    def __init__(self, *answers):
        self.answers = list(answers)
        self.asked = []

    async def post(self, path, headers, body):
        self.asked.append((path, headers, body))
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def close(self):
        pass


def http(port=1, **headers):
    return SimpleNamespace(
        client=SimpleNamespace(host="127.0.0.1", port=port),
        headers=headers,
        url=SimpleNamespace(path="/v1/systemone"),
    )


def make(*answers):
    made = Successor("/nowhere", Metrics())
    made._client = FakeClient(*answers)
    return made


async def settle(made):
    if made._mirroring:
        await made._mirroring


def answered(status=200, body=BODY, **headers):
    return Received(status, headers, body)


async def ask(made, **headers):
    return await made.answer(http(**headers), b"{}", asyncio.get_running_loop().time() + 5)


async def test_an_answer_is_passed_on_with_what_it_says_of_itself():
    made = make(answered(server="uvicorn", **{"server-timing": "total;dur=1"}))
    response = await ask(made, authorization="Bearer k", cookie="c")
    assert (response.status_code, response.body) == (200, BODY)
    assert response.headers["server-timing"] == "total;dur=1"
    assert "server" not in response.headers
    ((_, headers, _),) = made._client.asked
    assert headers["authorization"] == "Bearer k"
    assert "cookie" not in headers
    assert 4000 < int(headers["x-deadline-ms"]) <= 5000
    assert made.figures == Figures(passed_on=1)


@pytest.mark.parametrize(
    ("answer", "figures"),
    [
        (Unreachable("gone"), Figures(taken_back=1)),
        (answered(500), Figures(taken_back=1)),
        (answered(529), Figures(refused=1)),
        (answered(503), Figures(refused=1)),
    ],
)
async def test_what_it_fails_to_answer_is_answered_here(answer, figures):
    made = make(answer)
    assert await ask(made) is None
    assert made.figures == figures


async def test_a_wrong_request_is_wrong_there_too():
    made = make(answered(422))
    assert (await ask(made)).status_code == 422
    assert made.figures == Figures()


def test_each_connection_changes_once_as_the_share_grows():
    made = Successor("/nowhere", Metrics())
    places = [place_of(http(port)) for port in range(1000)]
    assert 0 <= min(places) < max(places) < 1
    for share in (0.0, 0.1, 0.3, 1.0):
        made.share_passed_on = share
        taken = [port for port in range(1000) if made.takes(http(port))]
        assert taken == [port for port, place in enumerate(places) if place < share]
        assert abs(len(taken) - 1000 * share) < 60


async def test_a_share_of_the_answers_is_mirrored():
    made = make(*[answered()] * 3)
    made.share_mirrored = 0.25
    for _ in range(12):
        made.mirror(http(), b"{}", BODY, 0.1)
        await settle(made)
    assert made.figures.requests == 3
    assert made.figures.flips == made.figures.errors == 0


async def test_mirroring_never_waits_and_drops_what_is_too_much(monkeypatch):
    monkeypatch.setattr(successor_module, "MIRRORED_AT_MOST", 2)
    made = make(*[answered()] * 2)
    made.share_mirrored = 1.0
    for _ in range(5):
        made.mirror(http(), b"{}", BODY, 0.1)
    assert made._client.asked == []
    await settle(made)
    assert (made.figures.requests, made.figures.dropped) == (2, 3)


async def test_one_that_dies_while_it_is_mirrored_to_is_an_error():
    made = make(Unreachable("gone"))
    made.share_mirrored = 1.0
    made.mirror(http(), b"{}", BODY, 0.1)
    await settle(made)
    assert made.figures == Figures(errors=1)


async def test_a_deadline_too_short_for_it_is_no_fault_of_its():
    made, loop = make(), asyncio.get_running_loop()
    deadline = loop.time() + 0.05
    says = loop.create_future()
    loop.call_at(deadline + 0.01, says.set_result, answered(504))
    made._client.post = lambda *_: says
    assert await made.answer(http(), b"{}", deadline) is None
    assert made.figures == Figures(refused=1)


async def test_a_successor_that_stands_still_does_not_hold_a_request_beyond_its_deadline(monkeypatch):
    monkeypatch.setattr(successor_module, "LATE_S", 0.05)
    made = make()
    made._client.post = lambda *_: asyncio.get_running_loop().create_future()
    begun = time.monotonic()
    assert await made.answer(http(), b"{}", asyncio.get_running_loop().time() + 0.05) is None
    assert time.monotonic() - begun < 5
    assert made.figures.taken_back == 1
