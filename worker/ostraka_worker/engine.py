"""The seam between the inference loop and whatever computes: an Engine reads lines of tokens and answers after them."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

TokenIds = npt.NDArray[np.uint32]


@dataclass(frozen=True, slots=True, eq=False)
class Memory:
    """What a model keeps of the tokens it has read: for each of its parts one array, a row a token."""

    rows: tuple[npt.NDArray[np.generic], ...]

    @property
    def nbytes(self) -> int:
        return sum(part.nbytes for part in self.rows)

    @property
    def tokens(self) -> int:
        """The room there is; whoever fills it knows how many rows are filled."""
        return len(self.rows[0])

    def first(self, tokens: int) -> tuple[npt.NDArray[np.generic], ...]:
        """Views: nothing is copied."""
        return tuple(part[:tokens] for part in self.rows)

    def write(self, first: int, parts: Sequence[npt.NDArray[np.generic]]) -> None:
        for into, part in zip(self.rows, parts, strict=True):
            into[first : first + len(part)] = part

    def cut(self, tokens: int) -> "Memory":
        """A memory of so many rows: itself where a quarter more is all there is, since copying costs 5 % of reading."""
        if self.tokens <= tokens * 5 // 4:
            return self
        return Memory(tuple(part[:tokens].copy() for part in self.rows))


@dataclass(frozen=True, slots=True, eq=False)
class Line:
    """Tokens to be read after what they follow: the first `past_tokens` of `past`, or the line at `parent` of the same
    call and all that one follows, or nothing.

    What is kept of its first `keep_tokens` is written to `keep`, at the rows of their positions.
    """

    tokens: TokenIds
    past: Memory | None = None
    past_tokens: int = 0
    parent: int | None = None
    is_answered: bool = True
    keep: Memory | None = None
    keep_tokens: int = 0


class Engine(Protocol):
    """One loaded model. Used by one thread."""

    @property
    def version(self) -> str:
        """The runtime, its version and our own kernels, as `/health` shows them: "onnxruntime 1.31.1+amx"."""

    def memory(self, tokens: int) -> Memory:
        """Room for so many tokens, to be filled by lines that keep."""

    def run(self, lines: Sequence[Line]) -> npt.NDArray[np.float32]:
        """One model call. Returns, for each answered line, the logits of the "no" and the "yes" token after it.

        An answer depends on the tokens from the prompt's first to the line's last, and on nothing else: not on which of
        them came from a memory, nor on the call's other lines. Raises whatever the runtime raises.
        """


def first_position(lines: Sequence[Line], line: Line) -> int:
    """How many tokens the line follows."""
    count = 0
    while line.parent is not None:
        line = lines[line.parent]
        count += len(line.tokens)
    return count + line.past_tokens
