"""A checkpoint with an adapter added: W + B A for each linear layer, rounded to bfloat16 as most are published;
gains and answer rows replaced, last layers left out. One tensor at a time, when it is asked for, so that a build holds
no more than without.
"""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from ostraka_shared.errors import SourceRefused
from ostraka_worker.build.adapter_file import (
    ANSWERS,
    Adapter,
    adapted_linears,
    adapted_norms,
    read_adapter,
    stored_shapes,
)
from ostraka_worker.build.bfloat16 import rounded
from ostraka_worker.build.catalog import ShippedAdapter
from ostraka_worker.build.decoder import (
    EMBEDDING,
    HEAD,
    Checkpoint,
    Config,
    PiecewiseTensors,
    Tensor,
    expected_shapes,
    in_pieces,
)


def adapt(checkpoint: Checkpoint, adapter: Adapter, answer_token_ids: tuple[int, int]) -> Checkpoint:
    """Raises SourceRefused for an adapter of another form of decoder."""
    config = kept(checkpoint.config, adapter.record.layers, str(adapter.path))
    expected = stored_shapes(config, adapter.record.rank)
    names = set(expected) | set(adapter.shapes)
    if differing := [name for name in names if expected.get(name) != adapter.shapes.get(name)]:
        name = min(differing)
        raise SourceRefused(
            f"{adapter.path} does not fit this checkpoint: {name} is {adapter.shapes.get(name, 'missing')},"
            f" where {expected.get(name, 'nothing')} is expected"
        )
    tensors = AdaptedTensors(checkpoint, config, adapter, answer_token_ids)
    return Checkpoint(config, checkpoint.vocabulary, tensors, in_bf16=True)


def kept(config: Config, layers: int, whose: str) -> Config:
    """With the first `layers` layers alone."""
    if layers > config.layers:
        raise SourceRefused(f"{whose} keeps {layers} layers of a checkpoint that has {config.layers}")
    return replace(config, layers=layers)


def read_shipped(shipped: ShippedAdapter) -> Adapter:
    """Raises SourceRefused where it is not the file of this version."""
    adapter = read_adapter(shipped.path)
    if adapter.sha256 != shipped.sha256:
        raise SourceRefused(f"{shipped.path} is not the expected file (its SHA-256 differs): install ostraka again")
    return adapter


def refuse_other_base(adapter: Adapter, source: dict[str, str]) -> None:
    """`source` as model.json has it."""
    if source["sha256"] != adapter.record.base_sha256:
        named = source.get("file") or source.get("folder")
        raise SourceRefused(
            f"{adapter.path} was made for another checkpoint than {named}: its SHA-256 is {source['sha256'][:12]}...,"
            f" where {adapter.record.base_sha256[:12]}... is expected"
        )


class AdaptedTensors(PiecewiseTensors):
    """Those of `checkpoint` that `config` has, changed. The head is always its own: the embedding that it may be tied
    to goes on reading the answers' tokens as before."""

    def __init__(
        self, checkpoint: Checkpoint, config: Config, adapter: Adapter, answer_token_ids: tuple[int, int]
    ) -> None:
        super().__init__(expected_shapes(config))
        self._base = checkpoint.tensors
        self._adapter = adapter
        self._answer_token_ids = answer_token_ids
        self._linears = frozenset(adapted_linears(config))
        self._gains = frozenset(adapted_norms(config))

    def __getitem__(self, name: str) -> Tensor:
        if name not in self:
            raise KeyError(name)
        if name in self._gains:
            return self._adapter.tensors[name]
        if name in self._linears:
            a, b = self._adapter.low_rank(name)
            return rounded(self._base[name] + b @ a)
        if name == HEAD:
            return np.concatenate(list(self.pieces(HEAD)))
        return self._base[name]

    def pieces(self, name: str) -> Iterator[Tensor]:
        if name != HEAD:
            yield from in_pieces(self._base, name)
            return
        answers = self._adapter.tensors[ANSWERS]
        first = 0
        for piece in in_pieces(self._base, HEAD if HEAD in self._base else EMBEDDING):
            rows = piece.copy()  # what is read from a file may be read-only
            for token_id, answer in zip(self._answer_token_ids, answers, strict=True):
                if first <= token_id < first + len(rows):
                    rows[token_id - first] = answer
            yield rows
            first += len(rows)
