"""Quantised weights as bfloat16, for a graph in fp32: half the bytes to keep, to map and to read. That rounding is far
less than the one that made them (docs/checkpoints.md), which is gone; weights that lie in float are nobody's to round.
"""

from collections.abc import Iterator
from dataclasses import replace

from ostraka_worker.build.bfloat16 import rounded
from ostraka_worker.build.decoder import Checkpoint, PiecewiseTensors, Tensor, in_pieces, is_linear
from ostraka_worker.build.kernel_graphs import has_own_layers


def in_bf16(checkpoint: Checkpoint) -> Checkpoint:
    """The checkpoint as it is where bfloat16 holds its linear layers already, where one of them lies in float, and
    where nothing would read them as bfloat16."""
    if checkpoint.in_bf16 or not checkpoint.is_quantised or not has_own_layers(checkpoint.config):
        return checkpoint
    return replace(checkpoint, tensors=RoundedTensors(checkpoint), in_bf16=True)


class RoundedTensors(PiecewiseTensors):
    """The weights of linear layers rounded, all else as it is."""

    def __init__(self, checkpoint: Checkpoint) -> None:
        super().__init__(checkpoint.tensors)
        self._base = checkpoint.tensors

    def __getitem__(self, name: str) -> Tensor:
        tensor = self._base[name]
        return rounded(tensor) if is_linear(name, tensor.shape) else tensor

    def pieces(self, name: str) -> Iterator[Tensor]:
        for piece in in_pieces(self._base, name):
            yield rounded(piece) if is_linear(name, piece.shape) else piece
