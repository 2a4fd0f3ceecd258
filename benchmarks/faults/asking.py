"""Real clients: httpx with kept connections, who retry as the official SDK does, and compare each answer with the one
that was given before any fault."""

import asyncio
import itertools
import json
import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import httpx

from benchmarks.faults.outcomes import Kind, Outcome
from benchmarks.load import QUESTIONS, WORDS

PATH = "/v1/systemone"
DEADLINE_S = 9.0
TRY_AGAIN = frozenset({429, 503, 529})
BACKOFF_S = 0.1
LATE_S = 1.0
"""How much longer than its deadline a client waits: the answer to a late request should be an error, not silence."""
CLIENTS = 4
NEW_STATES = 0.8


@dataclass(frozen=True, slots=True)
class Asked:
    """`expected` is the body of the answer as it was; or, of a request that is to fail, its error's type."""

    body: bytes
    status: int = 200
    expected: bytes = b""

    def judge(self, response: httpx.Response) -> Kind:
        if self.status != 200:
            is_expected = response.status_code == self.status and self.expected in response.content
            return Kind.RIGHT if is_expected else Kind.WRONG
        if response.status_code != 200:
            return Kind.FAILED
        return Kind.RIGHT if response.content == self.expected else Kind.WRONG


def make_asked(count: int, seed: int = 1) -> list[Asked]:
    """Yes/no, choice and score questions, one to five, on states of 5 to 80 words, a few of them asked about again."""
    rng = random.Random(seed)
    states = [f"Ticket {number}. " + " ".join(rng.choices(WORDS, k=rng.randint(5, 80))) for number in range(count)]
    chosen = [state if rng.random() < NEW_STATES else rng.choice(states) for state in states]
    return [Asked(_encode(state, _make_questions(rng))) for state in chosen]


def make_large(count: int) -> list[Asked]:
    """On states of 300 words, each another."""
    question = {"q": {"type": "noul", "instructions": QUESTIONS[0]}}
    return [Asked(_encode(f"Ticket {number}. " + " ".join(WORDS[number:] * 10), question)) for number in range(count)]


def _make_questions(rng: random.Random) -> dict[str, Any]:
    made: dict[str, Any] = {"q0": {"type": "noul", "instructions": rng.choice(QUESTIONS)}}
    for number in range(1, rng.choice((1, 1, 1, 2, 3))):
        made[f"q{number}"] = {"type": "noul", "instructions": rng.choice(QUESTIONS)}
    if rng.random() < 0.2:
        made["team"] = {"type": "choice", "instructions": "Who handles it?", "criteria": {"billing": None, "it": None}}
    if rng.random() < 0.1:
        made["mood"] = {"type": "score", "instructions": "How upset?", "criteria": ["calm", "annoyed", "furious"]}
    return made


def _encode(state: str, questions: dict[str, Any]) -> bytes:
    return json.dumps({"model": "jev-latest", "state": state, "questions": questions}).encode()


def ask_for_failure(trigger: str, error_type: str) -> Asked:
    questions = {"q": {"type": "noul", "instructions": "Is it so?"}}
    return Asked(_encode(f"Ticket {trigger}", questions), 500, error_type.encode())


class Clients:
    """Several, each with its own connections, which take turns."""

    def __init__(self, url: str, count: int = CLIENTS, deadline_s: float = DEADLINE_S) -> None:
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=None)
        made = [httpx.AsyncClient(base_url=url, limits=limits, verify=False) for _ in range(count)]  # noqa: S501  http
        self._all = made
        self._turns = itertools.cycle(made)
        self._deadline_s = deadline_s
        self.is_leaving = False
        """Set when the server is told to end: who is not let in then is nobody's loss."""

    async def close(self) -> None:
        for each in self._all:
            await each.aclose()

    async def learn(self, asked: Sequence[Asked]) -> list[Asked]:
        """The same with what is answered now, while nothing is broken."""
        known = []
        for each in asked:
            response = await next(self._turns).post(PATH, content=each.body, timeout=60)
            response.raise_for_status()
            known.append(replace(each, expected=response.content))
        return known

    async def ask(self, asked: Asked, due: float) -> Outcome | None:
        """None where the server is leaving and no longer let it in."""
        http, loop = next(self._turns), asyncio.get_running_loop()
        retries, was_sent, detail, kind = 0, False, "", Kind.LOST
        while (left_s := due + self._deadline_s - loop.time()) > 0:
            headers = {"x-deadline-ms": str(max(1, int(left_s * 1000)))}
            try:
                response = await http.post(PATH, content=asked.body, headers=headers, timeout=left_s + LATE_S)
            except httpx.TransportError as bad:
                was_sent |= not isinstance(bad, httpx.ConnectError)
                if self.is_leaving and isinstance(bad, httpx.ConnectError):
                    break
                kind, detail, wait_s = Kind.LOST, repr(bad), BACKOFF_S
            else:
                if response.status_code not in TRY_AGAIN:
                    found = asked.judge(response)
                    detail = "" if found is Kind.RIGHT else f"{response.status_code} {response.text[:200]}"
                    answer_id = response.headers.get("x-typesafe-request-id", "")
                    return Outcome(due, loop.time(), found, retries, answer_id, detail)
                wait_s = float(response.headers.get("retry-after-ms", BACKOFF_S * 1000)) / 1000
                kind, detail = Kind.FAILED, f"{response.status_code} {response.text[:200]}"
            retries += 1
            await asyncio.sleep(min(wait_s, max(0.0, due + self._deadline_s - loop.time())))
        if self.is_leaving and not was_sent:
            return None
        return Outcome(due, loop.time(), kind, retries, detail=detail)


class SteadyLoad:
    """So many requests a second, evenly, whether or not those before are answered (an open loop)."""

    def __init__(self, clients: Clients, asked: Sequence[Asked], rate: float) -> None:
        self.clients = clients
        self._asked = itertools.cycle(asked)
        self._gap_s = 1 / rate
        self.outcomes: list[Outcome] = []
        self._asking: set[asyncio.Task[None]] = set()
        self._sending = asyncio.create_task(self._send())

    async def stop(self) -> None:
        """What was sent is waited for."""
        self._sending.cancel()
        await asyncio.gather(*self._asking)

    def ask(self, asked: Asked, due: float) -> asyncio.Task[None]:
        asking = asyncio.create_task(self._ask(asked, due))
        self._asking.add(asking)
        asking.add_done_callback(self._asking.discard)
        return asking

    async def _send(self) -> None:
        loop = asyncio.get_running_loop()
        due = loop.time()
        while True:
            await asyncio.sleep(due - loop.time())
            self.ask(next(self._asked), due)
            due += self._gap_s

    async def _ask(self, asked: Asked, due: float) -> None:
        outcome = await self.clients.ask(asked, due)
        if outcome:
            self.outcomes.append(outcome)


async def measure_capacity(clients: Clients, asked: Sequence[Asked], seconds: float, in_flight: int = 16) -> float:
    """Requests a second of a closed loop: the next is sent when one is answered."""
    loop = asyncio.get_running_loop()
    begun, turns, answered = loop.time(), itertools.cycle(asked), 0

    async def work() -> None:
        nonlocal answered
        while loop.time() < begun + seconds:
            await clients.ask(next(turns), loop.time())
            answered += 1

    await asyncio.gather(*(work() for _ in range(in_flight)))
    return answered / (loop.time() - begun)
