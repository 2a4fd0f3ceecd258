"""A decoder to be built from, as every source is read: its numbers, its vocabulary, its tensors by GGUF's names.

It knows neither files nor ONNX. What the three architectures differ in is said here and nowhere else.
"""

from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass

import numpy as np
import numpy.typing as npt

from ostraka_shared.errors import SourceRefused
from ostraka_worker.build.tokenizer import Vocabulary

Tensor = npt.NDArray[np.float32]
Shape = tuple[int, ...]

ARCHITECTURES = ("llama", "qwen2", "qwen3")
HAS_BIASES = ("qwen2",)
HAS_HEAD_NORMS = ("qwen3",)
EMBEDDING = "token_embd.weight"
HEAD = "output.weight"

# Far above any model that one machine's CPUs serve: what is past them is damage, or would ask for all the memory.
MOST = {
    "layers": 1_024,
    "hidden": 1 << 16,
    "feed_forward": 1 << 20,
    "heads": 1_024,
    "kv_heads": 1_024,
    "head_dims": 1_024,
    "context_tokens": 1 << 20,
    "vocabulary_size": 1 << 22,
}


@dataclass(frozen=True, slots=True)
class Config:
    """`head_dims` times `heads` need not be `hidden`. Raises SourceRefused for numbers that make no model."""

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
    vocabulary_size: int

    def __post_init__(self) -> None:
        for name, value in asdict(self).items():
            if name in MOST and not 1 <= value <= MOST[name]:
                raise SourceRefused(f"a model of {value} {name} cannot be: between 1 and {MOST[name]} are built")
        if self.heads % self.kv_heads:
            raise SourceRefused(f"{self.heads} query heads cannot share {self.kv_heads} key heads evenly")
        if self.head_dims % 2:
            raise SourceRefused(f"heads of {self.head_dims} dimensions cannot be rotated in pairs")
        if not 1 <= self.rope_base <= 1e12 or not 0 < self.norm_epsilon < 1:
            raise SourceRefused(f"a rope base of {self.rope_base} and a norm epsilon of {self.norm_epsilon} cannot be")

    @property
    def query_width(self) -> int:
        return self.heads * self.head_dims

    @property
    def key_width(self) -> int:
        return self.kv_heads * self.head_dims

    @property
    def has_biases(self) -> bool:
        return self.architecture in HAS_BIASES

    @property
    def has_head_norms(self) -> bool:
        """Whether each head of query and key is normalised before it is rotated."""
        return self.architecture in HAS_HEAD_NORMS


class PiecewiseTensors(Mapping[str, Tensor]):
    """Tensors of these names, which can be read a run of rows at a time."""

    def __init__(self, names: Iterable[str]) -> None:
        self._names = dict.fromkeys(names)

    @abstractmethod
    def pieces(self, name: str) -> Iterator[Tensor]: ...

    def __contains__(self, name: object) -> bool:
        return name in self._names  # the inherited one reads the tensor to see

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """Tensors are [out, in], rotary halves in the order of Hugging Face (first half, second half).

    `tensors` reads one each time it is asked, and keeps none: whoever asks twice waits twice. Asking may raise
    SourceRefused, where the file has changed or holds what is no number.
    """

    config: Config
    vocabulary: Vocabulary
    tensors: Mapping[str, Tensor]
    in_bf16: bool = False
    """Whether bfloat16 holds the weights of all linear layers."""
    is_quantised: bool = False
    """Whether those of them that it does not hold all lie in the file in 8 bits or fewer."""

    def layer(self, index: int, name: str) -> Tensor:
        return self.tensors[f"blk.{index}.{name}.weight"]

    def packed(self, index: int, names: Sequence[str]) -> Tensor:
        """Weights of one layer that read the same rows, one below the other."""
        return np.concatenate([self.layer(index, name) for name in names])

    def packed_bias(self, index: int, names: Sequence[str]) -> Tensor | None:
        if not self.config.has_biases:
            return None
        return np.concatenate([self.tensors[f"blk.{index}.{name}.bias"] for name in names])

    def embedding_pieces(self) -> Iterator[Tensor]:
        """All its rows, a run at a time: whole, it is larger than all else that a build holds."""
        return in_pieces(self.tensors, EMBEDDING)

    def embedding_rows(self, token_ids: Sequence[int] | npt.NDArray[np.integer]) -> Tensor:
        return self._rows(EMBEDDING, token_ids)

    def head_rows(self, token_ids: Sequence[int]) -> Tensor:
        """The rows that turn the last state into logits: the embedding's own where the checkpoint ties them."""
        return self._rows(HEAD if HEAD in self.tensors else EMBEDDING, token_ids)

    def _rows(self, name: str, token_ids: Sequence[int] | npt.NDArray[np.integer]) -> Tensor:
        ids = np.asarray(token_ids, np.int64)
        rows = np.empty((len(ids), self.config.hidden), np.float32)
        first = 0
        for piece in in_pieces(self.tensors, name):
            here = (ids >= first) & (ids < first + len(piece))
            rows[here] = piece[ids[here] - first]
            first += len(piece)
        return rows


def in_pieces(tensors: Mapping[str, Tensor], name: str) -> Iterator[Tensor]:
    """Runs of a tensor's rows, in order: the whole of it where `tensors` has no better way."""
    return tensors.pieces(name) if isinstance(tensors, PiecewiseTensors) else iter([tensors[name]])


def is_linear(name: str, shape: Shape) -> bool:
    """Whether it is the weight of a linear layer."""
    return name.startswith("blk.") and len(shape) > 1


def expected_shapes(config: Config) -> dict[str, Shape]:
    """Every tensor such a checkpoint has; only HEAD may be missing."""
    vocabulary = (config.vocabulary_size, config.hidden)
    whole: dict[str, Shape] = {
        EMBEDDING: vocabulary,
        HEAD: vocabulary,
        "output_norm.weight": (config.hidden,),
    }
    layer = _layer_shapes(config)
    return whole | {f"blk.{index}.{name}": shape for index in range(config.layers) for name, shape in layer.items()}


def _layer_shapes(config: Config) -> dict[str, Shape]:
    hidden, wide, query, key = config.hidden, config.feed_forward, config.query_width, config.key_width
    shapes: dict[str, Shape] = {
        "attn_norm.weight": (hidden,),
        "attn_q.weight": (query, hidden),
        "attn_k.weight": (key, hidden),
        "attn_v.weight": (key, hidden),
        "attn_output.weight": (hidden, query),
        "ffn_norm.weight": (hidden,),
        "ffn_gate.weight": (wide, hidden),
        "ffn_up.weight": (wide, hidden),
        "ffn_down.weight": (hidden, wide),
    }
    if config.has_biases:
        shapes |= {"attn_q.bias": (query,), "attn_k.bias": (key,), "attn_v.bias": (key,)}
    if config.has_head_norms:
        shapes |= {"attn_q_norm.weight": (config.head_dims,), "attn_k_norm.weight": (config.head_dims,)}
    return shapes
