"""An Engine without a model, for protocol tests: its answers follow from the tokens, its faults from the model folder.

Trigger tokens in `model.json`'s "fake" table, each a token id that sets it off when any prompt of a call holds it:
`fail_on_token` raises, `die_on_token` kills the process as a crash in native code would, `stall_on_token` hangs until
the file `stall_until` exists (for ever where that is not set), `nan_on_token` answers with NaN.
"""

import os
import signal
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ostraka_worker.engine import Prompt

POLL_S = 0.005


@dataclass(frozen=True, slots=True)
class FakePlan:
    """`ms_per_token` makes a call take time. `fail_to_load` is the message of an engine that cannot start."""

    fail_on_token: int | None = None
    die_on_token: int | None = None
    stall_on_token: int | None = None
    stall_until: str | None = None
    nan_on_token: int | None = None
    ms_per_token: float = 0.0
    fail_to_load: str | None = None


class FakeEngine:
    def __init__(self, plan: dict[str, Any]) -> None:
        self._plan = FakePlan(**plan)
        if self._plan.fail_to_load:
            raise RuntimeError(self._plan.fail_to_load)

    @property
    def version(self) -> str:
        return "fake 1"

    def run(self, prompts: Sequence[Prompt]) -> npt.NDArray[np.float32]:
        plan = self._plan
        tokens = np.concatenate([part for prompt in prompts for part in (prompt.prefix, prompt.suffix)])
        if plan.ms_per_token:
            time.sleep(len(tokens) * plan.ms_per_token / 1000)
        if plan.stall_on_token in tokens:
            _stall(plan.stall_until)
        if plan.die_on_token in tokens:
            os.kill(os.getpid(), signal.SIGKILL)
        if plan.fail_on_token in tokens:
            raise RuntimeError("the fake engine was told to fail")
        logits = np.stack([fake_logits(np.concatenate([each.prefix, each.suffix])) for each in prompts])
        if plan.nan_on_token in tokens:
            logits[:] = np.nan
        return logits


def fake_logits(tokens: npt.NDArray[np.uint32]) -> npt.NDArray[np.float32]:
    """(no, yes) in -2..2, the same for the same prompt whatever its company; every token and its place count."""
    places = np.arange(1, len(tokens) + 1, dtype=np.uint64)
    digest = int(np.sum(tokens.astype(np.uint64) * places * np.uint64(2654435761)) % np.uint64(65536))
    return np.array([-digest / 32768 + 1, digest / 32768 - 1], dtype=np.float32)


def _stall(until: str | None) -> None:
    while until is None or not Path(until).exists():
        time.sleep(POLL_S)
