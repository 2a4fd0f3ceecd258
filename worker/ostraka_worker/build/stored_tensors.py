"""Tensors that stay in their files until they are asked for, so that a build never holds a whole checkpoint."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path

import numpy as np
import numpy.typing as npt

from ostraka_shared.errors import SourceRefused, UnknownArchitecture
from ostraka_worker.build.decoder import HEAD, Config, PiecewiseTensors, Shape, Tensor, expected_shapes, is_linear

Bytes = npt.NDArray[np.uint8]

# Read and widened at a time: the packed bytes and what unpacking leaves lying about are then small beside a tensor.
PIECE_VALUES = 1 << 22


@dataclass(frozen=True, slots=True)
class StoredTensor:
    """Rows of `row_bytes` from byte `offset` of the file; `widen` makes float32 of a run of them, flat. `in_bf16`: they
    lie there as bfloat16; `is_quantised`: in 8 bits or fewer, a block of them with a scale."""

    path: Path
    offset: int
    shape: Shape
    row_bytes: int
    widen: Callable[[Bytes], Tensor]
    in_bf16: bool = False
    is_quantised: bool = False

    def pieces(self) -> Iterator[Tensor]:
        """Runs of its rows, in order, [rows, values of a row]."""
        count = prod(self.shape[:-1])
        step = max(1, PIECE_VALUES // self.shape[-1])
        with self.path.open("rb") as file:
            file.seek(self.offset)
            for first in range(0, count, step):
                rows = min(step, count - first)
                raw = np.frombuffer(file.read(rows * self.row_bytes), np.uint8)
                if len(raw) != rows * self.row_bytes:
                    raise SourceRefused(f"{self.path} became shorter while it was read: fetch it again")
                yield self.widen(raw.reshape(rows, self.row_bytes)).reshape(rows, self.shape[-1])

    def read(self) -> Tensor:
        values = np.empty(self.shape, np.float32)
        rows, first = values.reshape(-1, self.shape[-1]), 0
        for piece in self.pieces():
            rows[first : first + len(piece)] = piece
            first += len(piece)
        return values


class StoredTensors(PiecewiseTensors):
    """`turned` puts a tensor's rows into the order that Checkpoint promises."""

    def __init__(self, stored: Mapping[str, StoredTensor], turned: Callable[[str, Tensor], Tensor]) -> None:
        super().__init__(stored)
        self._stored = stored
        self._turned = turned
        matrices = [each for name, each in stored.items() if is_linear(name, each.shape)]
        self.in_bf16 = all(each.in_bf16 for each in matrices)
        self.is_quantised = all(each.in_bf16 or each.is_quantised for each in matrices) and not self.in_bf16
        """Both as Checkpoint has them."""

    def __getitem__(self, name: str) -> Tensor:
        stored = self._stored[name]
        tensor = stored.read()
        _refuse_no_numbers(tensor, name, stored.path)
        return self._turned(name, tensor)

    def pieces(self, name: str) -> Iterator[Tensor]:
        """For a tensor whose rows are in order as they lie."""
        stored = self._stored[name]
        for piece in stored.pieces():
            _refuse_no_numbers(piece, name, stored.path)
            yield piece


def _refuse_no_numbers(tensor: Tensor, name: str, path: Path) -> None:
    # One sum, not one bit a value: no float32 can overflow a float64, and nothing hides an infinity from it.
    with np.errstate(invalid="ignore"):
        is_finite = np.isfinite(np.sum(tensor, dtype=np.float64))
    if not is_finite:
        raise SourceRefused(f"{path} holds values in {name} that are no numbers: fetch it again")


def refuse_unexpected(
    shapes: Mapping[str, Shape],
    config: Config,
    source: Path,
    *,
    is_tied: bool,
    named: Callable[[str], str] = str,
) -> None:
    """Raises for a tensor that such a checkpoint lacks, or has in another shape, and for one that is missing.

    `is_tied`: whether the head may be missing; `named`: how the source calls a tensor of ours. A tensor nobody reads (a
    bias, a rope factor, an expert) would silently change every answer.
    """
    expected = expected_shapes(config)
    for name, shape in shapes.items():
        if expected.get(name) != shape:
            wanted = f", where {expected[name]} is expected" if name in expected else ""
            raise UnknownArchitecture(
                f"cannot build a {config.architecture} model with a tensor {named(name)} of shape {shape}{wanted}"
            )
    missing = expected.keys() - shapes.keys() - ({HEAD} if is_tied else set())
    if missing:
        raise SourceRefused(f"{source} lacks {len(missing)} tensors, {named(min(missing))} first: fetch it whole")
