"""Waiting without sleeping in a test: for a condition, with a deadline."""

import asyncio
import time
from collections.abc import Callable, Iterable
from typing import TypeVar

import psutil

Found = TypeVar("Found")

POLL_S = 0.005
DEADLINE_S = 30.0
"""Of every wait that names none: on a machine that stands still for seconds too. A test that passes waits for no deadline."""


def wait_until(predicate: Callable[[], Found], deadline_s: float = DEADLINE_S, what: str = "") -> Found:
    """The predicate's first true value. Fails, naming `what`, when `deadline_s` have passed without one."""
    ends = time.monotonic() + deadline_s
    while not (found := predicate()):
        assert time.monotonic() < ends, f"not within {deadline_s} s: {what or predicate}"
        time.sleep(POLL_S)
    return found


def let_pass(seconds: float) -> None:
    """Where time itself is what a test is about, and real processes' clocks are the judge. Else wait for a condition."""
    time.sleep(seconds)


async def until(predicate: Callable[[], object], deadline_s: float = DEADLINE_S) -> None:
    """As `wait_until`, while the event loop goes on: for what nobody is told of."""
    async with asyncio.timeout(deadline_s):
        while not predicate():  # noqa: ASYNC110  there is no event to wait for
            await asyncio.sleep(POLL_S)


async def let_run(turns: int = 8) -> None:
    """So many turns of the event loop, in no time: tasks and callbacks that were made go on until they wait."""
    for _ in range(turns):
        await asyncio.sleep(0)


def name_of(process: psutil.Process) -> str:
    """Empty of one that ends just now."""
    try:
        return str(process.name())
    except psutil.Error:
        return ""


def is_dead(process: psutil.Process) -> bool:
    """Also one that nobody has waited for yet."""
    try:
        return bool(process.status() == psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return True


def still_alive(processes: Iterable[psutil.Process], deadline_s: float = DEADLINE_S) -> list[psutil.Process]:
    """Those that have not ended by then. An orphan that has ended may wait for init for a second or two, and nobody has
    to wait with it, as psutil's own `wait_procs` does."""
    ends, alive = time.monotonic() + deadline_s, list(processes)
    while (alive := [each for each in alive if not is_dead(each)]) and time.monotonic() < ends:
        time.sleep(POLL_S)
    return alive
