"""A plain float32 forward pass over a checkpoint's tensors, to hold a graph against. Shares nothing with the graph.

All prompts go through a layer together, attention apart: one prompt at a time took five times as long.
"""

import itertools
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from ostraka_worker.build.decoder import Checkpoint, Config, Tensor
from ostraka_worker.build.progress import Progress
from ostraka_worker.engine import TokenIds

WIDE_ROWS = 512
"""In the feed-forward at a time: there a row is several times as wide, and all of them were a build's peak."""

Turns = npt.NDArray[np.complex64]


def reference_logits(
    checkpoint: Checkpoint, prompts: Sequence[TokenIds], answer_token_ids: tuple[int, int], progress: Progress
) -> Tensor:
    """The two answers' logits after each prompt, [prompts, 2]. `progress` advances by a layer."""
    config = checkpoint.config
    ends = np.cumsum([len(ids) for ids in prompts])
    spans = [slice(start, end) for start, end in itertools.pairwise([0, *ends.tolist()])]
    turns = _turns(config, max(len(ids) for ids in prompts))
    x = checkpoint.embedding_rows(np.concatenate(prompts))
    for index in range(config.layers):
        normed = _norm(x, checkpoint.layer(index, "attn_norm"), config)
        x = x + _attention(checkpoint, index, normed, spans, turns)
        normed = _norm(x, checkpoint.layer(index, "ffn_norm"), config)
        x = x + _feed_forward(checkpoint, index, normed)
        progress.advance()
    last = _norm(x[ends - 1], checkpoint.tensors["output_norm.weight"], config)
    logits: Tensor = last @ checkpoint.head_rows(answer_token_ids).T
    return logits


def _norm(x: Tensor, gain: Tensor, config: Config) -> Tensor:
    scale = np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + np.float32(config.norm_epsilon))
    normed: Tensor = x / scale * gain
    return normed


def _turns(config: Config, tokens: int) -> Turns:
    """Each position's turn of each pair, as a complex number of length one: [tokens, 1, pairs]."""
    speeds = config.rope_base ** -(np.arange(config.head_dims // 2) * 2 / config.head_dims)
    turns: Turns = np.exp(1j * np.arange(tokens)[:, None, None] * speeds).astype(np.complex64)
    return turns


def _turn(x: Tensor, turns: Turns) -> Tensor:
    """Rotates [tokens, heads, dims], whose dimension i is paired with i + dims/2."""
    half = x.shape[-1] // 2
    turned = (x[..., :half] + 1j * x[..., half:]) * turns[: len(x)]
    return np.concatenate([turned.real, turned.imag], axis=-1)


def _attention(checkpoint: Checkpoint, index: int, normed: Tensor, spans: list[slice], turns: Turns) -> Tensor:
    names = ("attn_q", "attn_k", "attn_v")
    query, key, value = (_project(checkpoint, index, name, normed) for name in names)
    mixed = [_attend(_turn(query[span], turns), _turn(key[span], turns), value[span]) for span in spans]
    out: Tensor = np.concatenate(mixed) @ checkpoint.layer(index, "attn_output").T
    return out


def _project(checkpoint: Checkpoint, index: int, name: str, normed: Tensor) -> Tensor:
    """[tokens, heads, dims], its heads normalised each by itself where the architecture has it so."""
    config = checkpoint.config
    rows = normed @ checkpoint.layer(index, name).T
    if config.has_biases:
        rows = rows + checkpoint.tensors[f"blk.{index}.{name}.bias"]
    heads: Tensor = rows.reshape(len(normed), -1, config.head_dims)
    if config.has_head_norms and name != "attn_v":
        heads = _norm(heads, checkpoint.layer(index, f"{name}_norm"), config)
    return heads


def _attend(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """Causal attention in one prompt; neighbouring query heads share a key head."""
    tokens, heads, dims = query.shape
    shared_by = heads // key.shape[1]
    key, value = (np.repeat(x, shared_by, axis=1).swapaxes(0, 1) for x in (key, value))
    scores = query.swapaxes(0, 1) @ key.swapaxes(1, 2) / np.float32(np.sqrt(dims))
    scores += np.triu(np.full((tokens, tokens), -np.inf, np.float32), k=1)
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    mixed: Tensor = (weights / weights.sum(axis=-1, keepdims=True)) @ value
    return mixed.swapaxes(0, 1).reshape(tokens, -1)


def _feed_forward(checkpoint: Checkpoint, index: int, normed: Tensor) -> Tensor:
    gates, ups, downs = (checkpoint.layer(index, name).T for name in ("ffn_gate", "ffn_up", "ffn_down"))
    out = np.empty_like(normed)
    for start in range(0, len(normed), WIDE_ROWS):
        rows = slice(start, start + WIDE_ROWS)
        gate = normed[rows] @ gates
        out[rows] = (gate / (1 + np.exp(-gate)) * (normed[rows] @ ups)) @ downs
    return out
