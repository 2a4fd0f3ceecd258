"""A GGUF file as a Checkpoint. Anything that is not known is refused by name rather than built wrongly."""

from functools import partial
from pathlib import Path

import gguf
import numpy as np

from ostraka_shared.errors import SourceRefused, UnknownArchitecture
from ostraka_worker.build.decoder import ARCHITECTURES, Checkpoint, Config, Tensor
from ostraka_worker.build.gguf_header import Kind, TensorPlace, read_header
from ostraka_worker.build.settings import Settings
from ostraka_worker.build.stored_tensors import Bytes, StoredTensor, StoredTensors, refuse_unexpected
from ostraka_worker.build.tokenizer import BpeVocabulary, splitting

QUANTISED = (
    *(Kind.Q4_0, Kind.Q4_1, Kind.Q5_0, Kind.Q5_1, Kind.Q8_0),
    *(Kind.Q4_K, Kind.Q5_K, Kind.Q6_K),
)
KINDS = (Kind.F32, Kind.F16, Kind.BF16, *QUANTISED)
# Settings that change what a tensor means: the key, the values that change nothing, what to call it.
REFUSED: tuple[tuple[str, tuple[object, ...], str], ...] = (
    ("rope.scaling.type", ("none",), "rope scaling"),
    ("rope.scaling.factor", (0, 1), "rope scaling"),
    ("rope.scale_linear", (0, 1), "rope scaling"),
    ("attention.sliding_window", (0,), "a sliding window"),
    ("attention.causal", (True,), "attention that is not causal"),
    ("attention.scale", (0,), "its own attention scale"),
    ("attention.clamp_kqv", (0,), "clamped attention"),
    ("expert_count", (0,), "experts"),
    ("logit_scale", (0, 1), "scaled logits"),
    ("residual_scale", (0, 1), "scaled residuals"),
    ("embedding_scale", (0, 1), "scaled embeddings"),
)


def read_gguf(path: Path) -> Checkpoint:
    """Raises SourceRefused or UnknownArchitecture."""
    header = read_header(path)
    general = Settings(header.settings, path)
    if (parts := general.whole("split.count", 0)) > 1:
        raise SourceRefused(f"{path} is one of {parts} parts: join them with `llama-gguf-split --merge` first")
    architecture = general.text("general.architecture")
    if architecture not in ARCHITECTURES:
        raise UnknownArchitecture(
            f"cannot build a {architecture!r} model: only {', '.join(ARCHITECTURES)} are supported"
        )
    vocabulary = _read_vocabulary(general)
    config = _read_config(Settings(header.settings, path, f"{architecture}."), architecture, len(vocabulary.pieces))
    shapes = {place.name: place.shape for place in header.tensors}
    refuse_unexpected(shapes, config, path, is_tied=True)
    stored = {place.name: _stored(path, place) for place in header.tensors}
    tensors = StoredTensors(stored, partial(_in_half_order, config))
    return Checkpoint(config, vocabulary, tensors, tensors.in_bf16, tensors.is_quantised)


def _read_config(of: Settings, architecture: str, vocabulary_size: int) -> Config:
    for key, harmless, what in REFUSED:
        of.refuse(key, harmless, what)
    heads, hidden = of.whole("attention.head_count"), of.whole("embedding_length")
    if heads < 1:
        raise SourceRefused(f"a model of {heads} heads cannot be")
    head_dims = of.whole("attention.key_length", hidden // heads)
    of.refuse("attention.value_length", (head_dims,), "values of another width than keys")
    of.refuse("rope.dimension_count", (head_dims,), "heads that are rotated in part")
    return Config(
        architecture=architecture,
        layers=of.whole("block_count"),
        hidden=hidden,
        feed_forward=of.whole("feed_forward_length"),
        heads=heads,
        kv_heads=of.whole("attention.head_count_kv", heads),
        head_dims=head_dims,
        rope_base=of.real("rope.freq_base", 10000.0),
        norm_epsilon=of.real("attention.layer_norm_rms_epsilon"),
        context_tokens=of.whole("context_length"),
        vocabulary_size=vocabulary_size,
    )


def _read_vocabulary(general: Settings) -> BpeVocabulary:
    of = general.under("tokenizer.ggml.")
    kind = of.text("model")
    if kind != "gpt2":
        raise UnknownArchitecture(f"cannot build a model with a {kind!r} vocabulary: only byte-level BPE is supported")
    pre = of.text("pre", "default")
    pieces, types = of.texts("tokens"), of.wholes("token_type")
    if len(pieces) != len(types):
        raise SourceRefused(f"the vocabulary has {len(pieces)} pieces and {len(types)} types: fetch it again")
    merges = [tuple(merge.split(" ")) for merge in of.texts("merges")]
    special = (gguf.TokenType.CONTROL, gguf.TokenType.USER_DEFINED)
    return BpeVocabulary(
        pre=pre,
        pieces=tuple(pieces),
        merges=tuple(_pair(merge) for merge in merges),
        special=frozenset(piece for piece, kind in zip(pieces, types, strict=True) if kind in special),
        bos=_begin(of, pieces) if splitting(pre).has_bos else "",
    )


def _pair(merge: tuple[str, ...]) -> tuple[str, str]:
    if len(merge) != 2:
        raise SourceRefused(f"the vocabulary merges {merge!r}, which is no pair: fetch it again")
    return merge[0], merge[1]


def _begin(of: Settings, pieces: list[str]) -> str:
    if of.get("bos_token_id") is None:
        return ""
    begin = of.whole("bos_token_id")
    if not 0 <= begin < len(pieces):
        raise SourceRefused(f"the text begins with the piece {begin} of a vocabulary of {len(pieces)}: fetch it again")
    return pieces[begin]


def _stored(path: Path, place: TensorPlace) -> StoredTensor:
    if place.kind not in KINDS:
        kinds = ", ".join(kind.name for kind in KINDS)
        raise UnknownArchitecture(
            f"cannot build a model with {place.kind.name} weights: {place.name} has them; {kinds} are read"
        )
    widen = partial(_widen, place.kind)
    is_bf16, is_quantised = place.kind is Kind.BF16, place.kind in QUANTISED
    return StoredTensor(path, place.offset, place.shape, place.row_bytes, widen, is_bf16, is_quantised)


def _widen(kind: Kind, raw: Bytes) -> Tensor:
    if kind == Kind.F32:
        return raw.view("<f4")
    with np.errstate(invalid="ignore", over="ignore"):  # what is no number is refused when the tensor is whole
        widened: Tensor = gguf.dequantize(raw, kind)
    return widened


def _in_half_order(config: Config, name: str, tensor: Tensor) -> Tensor:
    """GGUF interleaves the rotated pairs of llama's query and key; here all first members come before the second."""
    if config.architecture != "llama":
        return tensor
    for part, heads in (("attn_q", config.heads), ("attn_k", config.kv_heads)):
        if name.endswith(f".{part}.weight"):
            return tensor.reshape(heads, -1, 2, config.hidden).swapaxes(1, 2).reshape(tensor.shape)
    return tensor
