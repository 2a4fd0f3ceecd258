"""The seam between the inference loop and whatever computes: an Engine reads prompts, returns two logits for each."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

TokenIds = npt.NDArray[np.uint32]


@dataclass(frozen=True, slots=True, eq=False)
class Prompt:
    """One question's tokens: the prefix it shares with its request's other prompts, and its own rest (never empty)."""

    prefix: TokenIds
    suffix: TokenIds

    @property
    def tokens(self) -> int:
        return len(self.prefix) + len(self.suffix)


class Engine(Protocol):
    """One loaded model. Used by one thread."""

    @property
    def version(self) -> str:
        """The runtime and its version, as `/health` shows it: "onnxruntime 1.31.1"."""

    def run(self, prompts: Sequence[Prompt]) -> npt.NDArray[np.float32]:
        """One model call. Returns [len(prompts), 2]: the logits of the "no" and the "yes" token after each prompt.

        An answer does not depend on which other prompts share the call. Raises whatever the runtime raises.
        """
