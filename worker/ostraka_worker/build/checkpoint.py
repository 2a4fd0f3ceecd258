"""Reads a GGUF checkpoint: its configuration, vocabulary and float32 tensors. Knows nothing of ONNX or answers.

Llama family with a GPT-2 style byte-level vocabulary; anything else is refused by name rather than built wrongly.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import numpy.typing as npt

from ostraka_shared.errors import SourceRefused, UnknownArchitecture
from ostraka_worker.build.progress import Progress

Tensor = npt.NDArray[np.float32]

ARCHITECTURES = ("llama",)


@dataclass(frozen=True, slots=True)
class Config:
    architecture: str
    layers: int
    hidden: int
    feed_forward: int
    heads: int
    kv_heads: int
    head_dims: int
    rope_base: float
    norm_epsilon: float
    context_tokens: int


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """A byte-level BPE vocabulary. `special` are the control pieces; `pre` names how text is split before merging."""

    pre: str
    pieces: tuple[str, ...]
    merges: tuple[tuple[str, str], ...]
    special: frozenset[str]
    bos: str


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """Tensors by GGUF name, [out, in], rotary halves in the order of Hugging Face's llama (first half, second half)."""

    config: Config
    vocabulary: Vocabulary
    tensors: Mapping[str, Tensor]

    def layer(self, index: int, name: str) -> Tensor:
        return self.tensors[f"blk.{index}.{name}.weight"]

    @property
    def embedding(self) -> Tensor:
        return self.tensors["token_embd.weight"]

    @property
    def head(self) -> Tensor:
        """The rows that turn the last state into logits: the embedding itself where the checkpoint ties them."""
        return self.tensors.get("output.weight", self.embedding)


def read_checkpoint(path: Path, progress: Progress) -> Checkpoint:
    """Raises SourceRefused or UnknownArchitecture."""
    try:
        reader = gguf.GGUFReader(path)
        fields = {name: field.contents() for name, field in reader.fields.items()}
    except (ValueError, KeyError, IndexError, UnicodeDecodeError) as bad:
        raise SourceRefused(f"{path} is not a readable GGUF file ({bad})") from bad
    try:
        config = _read_config(fields)
        vocabulary = _read_vocabulary(fields)
    except KeyError as missing:
        raise SourceRefused(f"{path} lacks {missing}, which a llama checkpoint must have") from missing
    except (IndexError, TypeError, ValueError) as bad:
        raise SourceRefused(f"{path} describes no model ({bad})") from bad
    tensors = _read_tensors(reader, config, len(vocabulary.pieces), progress)
    return Checkpoint(config, vocabulary, tensors)


def _read_config(fields: Mapping[str, Any]) -> Config:
    architecture = str(fields["general.architecture"])
    if architecture not in ARCHITECTURES:
        raise UnknownArchitecture(
            f"cannot build a {architecture!r} model: only {', '.join(ARCHITECTURES)} is supported"
        )
    of = {name.removeprefix(f"{architecture}."): value for name, value in fields.items()}
    if of.get("rope.scaling.type", "none") != "none":
        raise UnknownArchitecture(f"cannot build a model with {of['rope.scaling.type']!r} rope scaling")
    heads = int(of["attention.head_count"])
    head_dims = int(of.get("attention.key_length", int(of["embedding_length"]) // heads))
    if int(of.get("rope.dimension_count", head_dims)) != head_dims:
        raise UnknownArchitecture("cannot build a model whose heads are rotated in part")
    return Config(
        architecture=architecture,
        layers=int(of["block_count"]),
        hidden=int(of["embedding_length"]),
        feed_forward=int(of["feed_forward_length"]),
        heads=heads,
        kv_heads=int(of.get("attention.head_count_kv", heads)),
        head_dims=head_dims,
        rope_base=float(of.get("rope.freq_base", 10000.0)),
        norm_epsilon=float(of["attention.layer_norm_rms_epsilon"]),
        context_tokens=int(of["context_length"]),
    )


def _read_vocabulary(fields: Mapping[str, Any]) -> Vocabulary:
    kind = fields["tokenizer.ggml.model"]
    if kind != "gpt2":
        raise UnknownArchitecture(f"cannot build a model with a {kind!r} vocabulary: only byte-level BPE is supported")
    pieces = tuple(fields["tokenizer.ggml.tokens"])
    types = fields["tokenizer.ggml.token_type"]
    special = (gguf.TokenType.CONTROL, gguf.TokenType.USER_DEFINED)
    merges = (merge.split(" ") for merge in fields["tokenizer.ggml.merges"])
    return Vocabulary(
        pre=str(fields.get("tokenizer.ggml.pre", "default")),
        pieces=pieces,
        merges=tuple((left, right) for left, right in merges),
        special=frozenset(piece for piece, kind in zip(pieces, types, strict=True) if kind in special),
        bos=pieces[int(fields["tokenizer.ggml.bos_token_id"])],
    )


def _read_tensors(reader: Any, config: Config, vocabulary_size: int, progress: Progress) -> dict[str, Tensor]:
    shapes = _expected_shapes(config, vocabulary_size)
    progress.begin("reading the checkpoint", len(reader.tensors), " tensors")
    tensors: dict[str, Tensor] = {}
    for entry in reader.tensors:
        shape = tuple(int(size) for size in reversed(entry.shape))
        if shapes.get(entry.name) != shape:
            # A tensor nobody reads (a bias, a rope factor, an expert) would silently change every answer.
            raise UnknownArchitecture(f"cannot build a llama model with a tensor {entry.name} of shape {shape}")
        tensor = _dequantise(entry).reshape(shape)
        tensors[entry.name] = _in_half_order(entry.name, tensor, config)
        progress.advance()
    missing = set(shapes) - set(tensors) - {"output.weight"}
    if missing:
        raise SourceRefused(f"the checkpoint lacks {len(missing)} tensors, {min(missing)} first")
    return tensors


def _dequantise(entry: Any) -> Tensor:
    try:
        tensor: Tensor = gguf.dequantize(entry.data, entry.tensor_type).astype(np.float32, copy=False)
    except NotImplementedError as unknown:
        kind = entry.tensor_type.name
        raise UnknownArchitecture(f"cannot build a model with {kind} weights: {entry.name} has them") from unknown
    return tensor


def _expected_shapes(config: Config, vocabulary_size: int) -> dict[str, tuple[int, ...]]:
    hidden, wide = config.hidden, config.feed_forward
    query, key = config.heads * config.head_dims, config.kv_heads * config.head_dims
    layer: dict[str, tuple[int, ...]] = {
        "attn_norm": (hidden,),
        "attn_q": (query, hidden),
        "attn_k": (key, hidden),
        "attn_v": (key, hidden),
        "attn_output": (hidden, query),
        "ffn_norm": (hidden,),
        "ffn_gate": (wide, hidden),
        "ffn_up": (wide, hidden),
        "ffn_down": (hidden, wide),
    }
    vocabulary = (vocabulary_size, hidden)
    whole = {"token_embd.weight": vocabulary, "output.weight": vocabulary, "output_norm.weight": (hidden,)}
    layers = {f"blk.{index}.{name}.weight": shape for index in range(config.layers) for name, shape in layer.items()}
    return whole | layers


def _in_half_order(name: str, tensor: Tensor, config: Config) -> Tensor:
    """GGUF interleaves the rotated pairs of llama's query and key; here all first members come before the second."""
    for part, heads in (("attn_q", config.heads), ("attn_k", config.kv_heads)):
        if name.endswith(f".{part}.weight"):
            return tensor.reshape(heads, -1, 2, config.hidden).swapaxes(1, 2).reshape(tensor.shape)
    return tensor
