"""An Engine without a model, for protocol tests: its answers follow from the tokens, its faults from the model folder.

Trigger tokens in `model.json`'s "fake" table, each a token id that sets it off when any line of a call holds it:
`fail_on_token` raises, `die_on_token` kills the process as a crash in native code would, `stall_on_token` hangs until
the file `stall_until` exists (for ever where that is not set), `nan_on_token` answers with NaN, `grow_on_token` takes
`GROWTH_BYTES` more memory and keeps it.
"""

import os
import resource
import signal
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ostraka_worker.engine import Line, Memory, TokenIds, first_position

POLL_S = 0.005
GROWTH_BYTES = 64 << 20


@dataclass(frozen=True, slots=True)
class FakePlan:
    """`ms_per_token` makes a call take time, `logit_shift` each yes likelier. `fail_to_load` is
    the message of an engine that cannot start, `starts_thread` makes it one that must not be forked."""

    fail_on_token: int | None = None
    die_on_token: int | None = None
    stall_on_token: int | None = None
    stall_until: str | None = None
    nan_on_token: int | None = None
    grow_on_token: int | None = None
    logit_shift: float = 0.0
    ms_per_token: float = 0.0
    fail_to_load: str | None = None
    starts_thread: bool = False


class FakeEngine:
    def __init__(self, plan: dict[str, Any]) -> None:
        self._plan = FakePlan(**plan)
        self._grown: list[npt.NDArray[np.uint8]] = []
        if self._plan.fail_to_load:
            raise RuntimeError(self._plan.fail_to_load)
        if self._plan.starts_thread:
            threading.Thread(target=threading.Event().wait, daemon=True).start()

    @property
    def version(self) -> str:
        return "fake 1"

    def memory(self, tokens: int) -> Memory:
        """It keeps the tokens themselves: who is given the wrong rows answers wrongly."""
        return Memory((np.zeros(tokens, np.uint32),))

    def run(self, lines: Sequence[Line]) -> npt.NDArray[np.float32]:
        plan = self._plan
        tokens = np.concatenate([line.tokens for line in lines])
        if plan.ms_per_token:
            time.sleep(len(tokens) * plan.ms_per_token / 1000)
        if plan.stall_on_token in tokens:
            _stall(plan.stall_until)
        if plan.die_on_token in tokens:
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            os.kill(os.getpid(), signal.SIGSEGV)
        if plan.grow_on_token in tokens:
            self._grown.append(np.ones(GROWTH_BYTES, np.uint8))
        if plan.fail_on_token in tokens:
            raise RuntimeError("the fake engine was told to fail")
        for line in lines:
            if line.keep is not None:
                line.keep.write(first_position(lines, line), [line.tokens[: line.keep_tokens]])
        answered = [fake_logits(_sequence(lines, line)) for line in lines if line.is_answered]
        logits = np.stack(answered) if answered else np.zeros((0, 2), np.float32)
        logits[:, 1] += plan.logit_shift
        if plan.nan_on_token in tokens:
            logits[:] = np.nan
        return logits


def _sequence(lines: Sequence[Line], line: Line) -> TokenIds:
    """All tokens of the prompt up to the line's last."""
    if line.parent is not None:
        return np.concatenate([_sequence(lines, lines[line.parent]), line.tokens])
    before = line.past.first(line.past_tokens)[0] if line.past is not None else np.zeros(0, np.uint32)
    return np.concatenate([before, line.tokens]).astype(np.uint32)


def fake_logits(tokens: npt.NDArray[np.uint32]) -> npt.NDArray[np.float32]:
    """(no, yes) in -1..1, the same for the same prompt whatever its company; every token and its place count."""
    places = np.arange(1, len(tokens) + 1, dtype=np.uint64)
    digest = int(np.sum(tokens.astype(np.uint64) * places * np.uint64(2654435761)) % np.uint64(65536))
    return np.array([-digest / 32768 + 1, digest / 32768 - 1], dtype=np.float32)


def _stall(until: str | None) -> None:
    while until is None or not Path(until).exists():
        time.sleep(POLL_S)
