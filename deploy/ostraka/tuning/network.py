"""A checkpoint as a PyTorch network whose linears have changes of low rank: what training trains, and no more.

Frozen weights and the reading are in `dtype`; the parameters, and the last norm and the margins, in float32.
"""

from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from ostraka.tuning.batches import Batch, visible
from ostraka.tuning.functions import LowRank, Norm, Turn
from ostraka.tuning.parameters import HIGH, LOW
from ostraka_worker.build.adapter_file import ANSWERS, OUTPUT_NORM, adapted_linears
from ostraka_worker.build.decoder import Checkpoint, Config
from ostraka_worker.build.decoder import Tensor as Array

HIDDEN = -1e4
"""Added to the score of what must not be seen: as good as -inf in bfloat16, and no NaN where a row sees nothing."""


class Network:
    """`parameters` have the names of an adapter's file: the halves of each change, the gains, the answers' rows."""

    def __init__(
        self, checkpoint: Checkpoint, config: Config, parameters: Mapping[str, Array], dtype: torch.dtype
    ) -> None:
        """`config`: the checkpoint's, with the layers that are kept."""
        self.config = config
        self.dtype = dtype
        self.parameters = {name: torch.tensor(value, requires_grad=True) for name, value in parameters.items()}
        self._embedding = torch.cat([_frozen(piece, dtype) for piece in checkpoint.embedding_pieces()])
        names = [*adapted_linears(config), *_untuned(config)]
        self._frozen = {name: _frozen(checkpoint.tensors[name], dtype) for name in names}

    def cast(self) -> dict[str, Tensor]:
        """The parameters as they are read, once for a batch."""
        return {name: value.to(self.dtype) for name, value in self.parameters.items()}

    def margins(self, batch: Batch) -> Tensor:
        """Of each prompt the logit of yes less that of no."""
        cast = self.cast()
        x = functional.embedding(torch.from_numpy(batch.token_ids).reshape(-1), self._embedding)
        turns, mask = self._turns(batch), self._mask(batch)
        last = torch.from_numpy(batch.last)
        for index in range(self.config.layers):
            attended = self._attend(index, x, turns, mask, cast)
            if index == self.config.layers - 1:
                attended, x = attended[last], x[last]  # from here on nothing else is read
            x = x + self._linear(f"blk.{index}.attn_output", attended, cast)
            x = x + self._feed_forward(index, x, cast)
        gain, answers = self.parameters[OUTPUT_NORM], self.parameters[ANSWERS]
        normed: Tensor = Norm.apply(x.to(gain.dtype), gain, self.config.norm_epsilon)
        return normed @ (answers[1] - answers[0])

    def _attend(
        self, index: int, x: Tensor, turns: tuple[Tensor, Tensor], mask: Tensor, cast: Mapping[str, Tensor]
    ) -> Tensor:
        """Rows in, rows out. Query heads that share a key head are read as one longer row of queries."""
        config, layer = self.config, f"blk.{index}"
        examples, longest = mask.shape[0], mask.shape[-1]
        normed = self._norm(f"{layer}.attn_norm.weight", x, cast)

        def heads(name: str, count: int) -> Tensor:
            rows = self._linear(f"{layer}.{name}", normed, cast).view(-1, count, config.head_dims)
            if config.has_head_norms and name != "attn_v":
                gain = self._frozen[f"{layer}.{name}_norm.weight"]
                rows = Norm.apply(rows.reshape(-1, config.head_dims), gain, config.norm_epsilon)
            return rows.view(examples, longest, count, config.head_dims).transpose(1, 2)

        query = Turn.apply(heads("attn_q", config.heads), *turns)
        key = Turn.apply(heads("attn_k", config.kv_heads), *turns)
        value = heads("attn_v", config.kv_heads)
        shared = (examples, config.kv_heads, config.heads // config.kv_heads * longest)
        scores = (query.reshape(*shared, config.head_dims) @ key.transpose(-1, -2)).view(*query.shape[:3], longest)
        weights = torch.softmax(torch.add(mask, scores, alpha=config.head_dims**-0.5), -1).view(*shared, longest)
        mixed = (weights @ value).view(query.shape)
        return mixed.transpose(1, 2).reshape(examples * longest, config.query_width)

    def _feed_forward(self, index: int, x: Tensor, cast: Mapping[str, Tensor]) -> Tensor:
        layer = f"blk.{index}"
        normed = self._norm(f"{layer}.ffn_norm.weight", x, cast)
        gate, up = (self._linear(f"{layer}.{name}", normed, cast) for name in ("ffn_gate", "ffn_up"))
        return self._linear(f"{layer}.ffn_down", functional.silu(gate) * up, cast)

    def _linear(self, name: str, x: Tensor, cast: Mapping[str, Tensor]) -> Tensor:
        weight = f"{name}.weight"
        made: Tensor = LowRank.apply(x, self._frozen[weight], cast[weight + LOW], cast[weight + HIGH])
        bias = self._frozen.get(f"{name}.bias")
        return made if bias is None else made + bias

    def _norm(self, name: str, x: Tensor, cast: Mapping[str, Tensor]) -> Tensor:
        normed: Tensor = Norm.apply(x, cast[name], self.config.norm_epsilon)
        return normed

    def _turns(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Cosines and sines, [examples, 1, longest, dims]."""
        dims = self.config.head_dims
        speeds = self.config.rope_base ** -(np.arange(0, dims, 2) / dims)
        angles = torch.from_numpy(batch.positions[:, None, :, None] * np.concatenate([speeds, speeds]))
        return angles.cos().to(self.dtype), angles.sin().to(self.dtype)

    def _mask(self, batch: Batch) -> Tensor:
        seen = torch.from_numpy(visible(batch.segments))[:, None]
        return torch.zeros(seen.shape, dtype=self.dtype).masked_fill_(~seen, HIDDEN)


def _untuned(config: Config) -> list[str]:
    """What stays as it is and is no matrix: qwen2's biases, the norms of qwen3's heads."""
    names: list[str] = []
    for index in range(config.layers):
        if config.has_biases:
            names += [f"blk.{index}.attn_{part}.bias" for part in "qkv"]
        if config.has_head_norms:
            names += [f"blk.{index}.attn_{part}_norm.weight" for part in "qk"]
    return names


def _frozen(values: Array, dtype: torch.dtype) -> Tensor:
    return torch.tensor(values).to(dtype)
