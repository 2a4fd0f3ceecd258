"""Requests of mixed lengths, always the same ones, and a client that keeps so many of them in flight."""

import asyncio
import json
import random
import time
from dataclasses import dataclass

import httpx

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
    """A closed loop, to find capacity: the next request starts when one is answered. Fails on any status but 200."""
    waiting = iter(bodies)
    latencies: list[float] = []
    tokens = 0

    async def client() -> None:
        nonlocal tokens
        async with httpx.AsyncClient(timeout=120) as http:
            for body in waiting:
                begun = time.perf_counter()
                response = await http.post(f"{url}/v1/systemone", content=body, headers={"x-deadline-ms": "120000"})
                latencies.append(time.perf_counter() - begun)
                response.raise_for_status()
                tokens += response.json()["usage"]["input_tokens"]

    begun = time.perf_counter()
    await asyncio.gather(*(client() for _ in range(in_flight)))
    return Measured(len(bodies), tokens, time.perf_counter() - begun, tuple(latencies))


def run_load(url: str, bodies: list[bytes], in_flight: int) -> Measured:
    return asyncio.run(drive(url, bodies, in_flight))
