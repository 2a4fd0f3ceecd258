"""Requests of mixed lengths, always the same ones, and a client that keeps so many of them in flight."""

import asyncio
import json
import random
import time
from dataclasses import dataclass

from benchmarks.faults.wire import Pool

TEXT = """order parcel refund late charged twice invoice card error login reset password broken screen support agent
waited hours nobody answered cancel plan upgrade price delivery address
wrong item missing thanks quick friendly helpful"""
WORDS = TEXT.split()
QUESTIONS = (
    "Is this a billing problem?",
    "Is the customer upset?",
    "Does this need a person?",
    "Is a refund asked for?",
)


@dataclass(frozen=True, slots=True)
class Measured:
    """`wall_s` from the first request sent to the last answer; latencies in seconds."""

    requests: int
    tokens: int
    wall_s: float
    latencies_s: tuple[float, ...]

    @property
    def tokens_per_s(self) -> float:
        return self.tokens / self.wall_s


def make_bodies(count: int, seed: int = 1) -> list[bytes]:
    """One yes/no question each, on states of 5 to 120 words: prompts of about 40 to 230 tokens."""
    rng = random.Random(seed)
    bodies = []
    for number in range(count):
        state = f"Ticket {number}. " + " ".join(rng.choices(WORDS, k=rng.randint(5, 120)))
        questions = {"q": {"type": "noul", "instructions": rng.choice(QUESTIONS)}}
        bodies.append(json.dumps({"model": "jev-latest", "state": state, "questions": questions}).encode())
    return bodies


async def drive(url: str, bodies: list[bytes], in_flight: int) -> Measured:
    """A closed loop, to find capacity: the next request starts when one is answered. Fails on any status but 200. The
    client is a bare one: making sixteen of a full one takes half a second, once a fifth of what was measured."""
    waiting = iter(bodies)
    latencies: list[float] = []
    pool, tokens = Pool(url), 0

    async def work() -> None:
        nonlocal tokens
        for body in waiting:
            begun = time.perf_counter()
            answer = await pool.ask("POST", "/v1/systemone", body, x_deadline_ms="120000")
            latencies.append(time.perf_counter() - begun)
            if answer.status != 200:
                raise RuntimeError(f"answered {answer.status}: {answer.body.decode()}")
            tokens += json.loads(answer.body)["usage"]["input_tokens"]

    begun = time.perf_counter()
    await asyncio.gather(*(work() for _ in range(in_flight)))
    pool.close()
    return Measured(len(bodies), tokens, time.perf_counter() - begun, tuple(latencies))


def run_load(url: str, bodies: list[bytes], in_flight: int) -> Measured:
    return asyncio.run(drive(url, bodies, in_flight))
