"""One costly client of each kind: what it sends, and again once it is answered, in a process of its own."""

import asyncio
import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from multiprocessing import get_context

from benchmarks.raw_http import Connection, post

NICENESS = 10
"""The client's own work must not be what the others wait for."""
PAUSE_S = 0.25
"""After a refusal: half of what the official SDK waits before it tries again."""
ANSWERED = 200
UPLOADS = 200
DRIP_S = 0.5


def _questions(questions: object, state: str = "The parcel came late, and the box was torn. " * 20) -> bytes:
    return json.dumps({"state": state, "questions": questions}).encode()


def many_questions() -> bytes:
    return _questions({f"q{n}": {"type": "noul", "instructions": f"Is it about order {n}?"} for n in range(1024)})


def many_options() -> bytes:
    return _questions({"q": {"type": "choice", "criteria": {f"option {n}": None for n in range(255)}}})


def long_options() -> bytes:
    criteria = {f"option {n}": "late or not? " * 600 for n in range(255)}
    return _questions({"q": {"type": "choice", "criteria": criteria}})


def long_texts() -> bytes:
    """As long as they are taken: a choice of 20 options, each of 8,000 characters, would be too long by far."""
    text = "Did the parcel come late, or was it the box? " * 177
    return _questions({f"q{n}": {"type": "noul", "instructions": f"{n} {text}"} for n in range(8)})


def many_values() -> bytes:
    return b'{"questions": {"q": {"type": "noul"}}, "state": [' + b"1," * 7_500_000 + b"0]}"


def full_body() -> bytes:
    """16 MB of what is JSON, and too long a state only once it is parsed."""
    return _questions({"q": {"type": "noul"}}, "late " * 3_300_000)


def structured_state() -> bytes:
    return b'{"questions": {"q": {"type": "noul"}}, "state": [' + b'{"a":1},' * 21_000 + b"0]}"


def deep_nesting() -> bytes:
    return b'{"questions": {"q": {"type": "noul"}}, "state": ' + b"[" * 5_000_000 + b"]" * 5_000_000 + b"}"


BODIES: dict[str, Callable[[], bytes]] = {
    "1,024 questions": many_questions,
    "255 options": many_options,
    "255 options of 7,800 characters": long_options,
    "8 texts of 8,000 characters": long_texts,
    "a state of 7.5 million numbers": many_values,
    "a body of 16 MB": full_body,
    "a state of 21,000 objects": structured_state,
    "5 million brackets deep": deep_nesting,
}
HUGE = "a body of 100 MB"
SLOW = f"{UPLOADS} slow uploads"
KINDS = (*BODIES, HUGE, SLOW)


async def _again_and_again(url: str, request: bytes) -> None:
    connection = Connection(url)
    while True:
        # It may be told early, and cut off while it sends.
        with suppress(ConnectionError, asyncio.IncompleteReadError):
            if await connection.ask(request) == ANSWERED:
                continue
        connection.close()
        await asyncio.sleep(PAUSE_S)


async def _upload(url: str, head: bytes) -> None:
    while True:
        connection = Connection(url)
        with suppress(ConnectionError):
            await connection.drip(head, DRIP_S)


async def _trouble(url: str, kind: str) -> None:
    if kind == SLOW:
        request = post(url, b"x" * 1_000_000)
        await asyncio.gather(*(_upload(url, request[:500_000]) for _ in range(UPLOADS)))
    elif kind == HUGE:
        await _again_and_again(url, post(url, b'{"state": "' + b"x" * 100_000_000 + b'"}'))
    else:
        await _again_and_again(url, post(url, BODIES[kind]()))


def _run(url: str, kind: str) -> None:
    os.nice(NICENESS)
    asyncio.run(_trouble(url, kind))


@contextmanager
def costly_client(url: str, kind: str) -> Iterator[None]:
    process = get_context("spawn").Process(target=_run, args=(url, kind), daemon=True)
    process.start()
    try:
        yield
    finally:
        process.kill()
        process.join()
