"""A llama forward pass written straight from the GGUF's own layout, to judge ours by.

It takes nothing from the builder: it unpacks the quantised blocks itself, rotates neighbouring pairs of the weights as
the file has them, and walks head by head. An adapter's changes are unpacked and added here too.
"""

import json
from pathlib import Path

import gguf
import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float32]


class NativeLlama:
    def __init__(self, path: Path) -> None:
        reader = gguf.GGUFReader(path)
        self.tensors = {t.name: _unpack(t) for t in reader.tensors}
        values = {name: field.contents() for name, field in reader.fields.items()}
        self.layers: int = values["llama.block_count"]
        self.heads: int = values["llama.attention.head_count"]
        self.kv_heads: int = values["llama.attention.head_count_kv"]
        self.base: float = values["llama.rope.freq_base"]
        self.epsilon: float = values["llama.attention.layer_norm_rms_epsilon"]
        self.answers: dict[int, Array] = {}

    def adapt(self, path: Path, answer_token_ids: tuple[int, int]) -> None:
        """W + B A, rounded to bfloat16, each row of A and B whole numbers times its scale; gains and answer rows as they are
        stored."""
        stored = _read_safetensors(path)
        for name in stored:
            if name.endswith("norm.weight"):
                self.tensors[name] = stored[name]
            if name.endswith(".lora_a"):
                linear = name.removesuffix(".lora_a")
                a, b = (
                    stored[f"{linear}.{half}"] * stored[f"{linear}.{half}_scale"][:, None]
                    for half in ("lora_a", "lora_b")
                )
                heads = {"attn_q": self.heads, "attn_k": self.kv_heads}.get(linear.split(".")[2])
                self.tensors[linear] = _to_bf16(self.tensors[linear] + (_pair_up(b @ a, heads) if heads else b @ a))
        self.layers = 1 + max(int(name.split(".")[1]) for name in stored if name.startswith("blk."))
        self.answers = dict(zip(answer_token_ids, stored["answers"], strict=True))

    def logits(self, ids: list[int], wanted: tuple[int, int]) -> Array:
        x = self.tensors["token_embd.weight"][ids]
        for layer in range(self.layers):
            x = x + self._attention(layer, self._norm(x, f"blk.{layer}.attn_norm.weight"))
            x = x + self._feed_forward(layer, self._norm(x, f"blk.{layer}.ffn_norm.weight"))
        last = self._norm(x[-1:], "output_norm.weight")[0]
        rows = [self.answers.get(token, self.tensors["token_embd.weight"][token]) for token in wanted]
        return np.array([np.dot(row, last) for row in rows], np.float32)

    def _norm(self, x: Array, gain: str) -> Array:
        return x / np.sqrt((x**2).mean(axis=1, keepdims=True) + np.float32(self.epsilon)) * self.tensors[gain]

    def _attention(self, layer: int, x: Array) -> Array:
        query, key, value = (x @ self.tensors[f"blk.{layer}.attn_{part}.weight"].T for part in "qkv")
        dims = query.shape[1] // self.heads
        outputs = []
        for head in range(self.heads):
            kv_head = head * self.kv_heads // self.heads
            q = self._rotate(query[:, head * dims : (head + 1) * dims])
            k = self._rotate(key[:, kv_head * dims : (kv_head + 1) * dims])
            v = value[:, kv_head * dims : (kv_head + 1) * dims]
            scores = q @ k.T / np.float32(dims**0.5)
            scores[np.triu_indices(len(x), 1)] = -np.inf
            odds = np.exp(scores - scores.max(axis=1, keepdims=True))
            outputs.append(odds / odds.sum(axis=1, keepdims=True) @ v)
        return np.hstack(outputs) @ self.tensors[f"blk.{layer}.attn_output.weight"].T

    def _rotate(self, x: Array) -> Array:
        """Dimensions 2i and 2i + 1 are a pair, turned by position / base ** (2i / dims)."""
        dims = x.shape[1]
        turned = np.empty_like(x)
        for pair in range(dims // 2):
            angles = np.arange(len(x)) / self.base ** (2 * pair / dims)
            cos, sin = np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)
            even, odd = x[:, 2 * pair], x[:, 2 * pair + 1]
            turned[:, 2 * pair] = even * cos - odd * sin
            turned[:, 2 * pair + 1] = even * sin + odd * cos
        return turned

    def _feed_forward(self, layer: int, x: Array) -> Array:
        gate = x @ self.tensors[f"blk.{layer}.ffn_gate.weight"].T
        up = x @ self.tensors[f"blk.{layer}.ffn_up.weight"].T
        return (gate / (1 + np.exp(-gate)) * up) @ self.tensors[f"blk.{layer}.ffn_down.weight"].T


def _pair_up(change: Array, heads: int) -> Array:
    """An adapter has all first members of a head's pairs before the second ones; the GGUF has each pair together."""
    halves = change.reshape(heads, 2, -1, change.shape[1])
    return halves.transpose(0, 2, 1, 3).reshape(change.shape)


def _to_bf16(values: Array) -> Array:
    """The nearest of 8 binary places, of two the even one."""
    places, exponents = np.frexp(values)
    rounded: Array = np.ldexp(np.rint(places * 256), exponents - 8).astype(np.float32)
    return rounded


def _read_safetensors(path: Path) -> dict[str, Array]:
    raw = path.read_bytes()
    start = 8 + int.from_bytes(raw[:8], "little")
    tensors = {}
    for name, entry in json.loads(raw[8:start]).items():
        if name != "__metadata__":
            first, last = entry["data_offsets"]
            values = np.frombuffer(raw[start + first : start + last], {"I8": "i1", "F32": "<f4"}[entry["dtype"]])
            tensors[name] = values.astype(np.float32).reshape(entry["shape"])
    return tensors


def _unpack(tensor: gguf.ReaderTensor) -> Array:
    shape = [int(size) for size in tensor.shape[::-1]]
    if tensor.tensor_type.name == "F32":
        return np.array(tensor.data, np.float32).reshape(shape)
    unpack = {"Q8_0": _q8_0, "Q4_1": _q4_1}[tensor.tensor_type.name]
    return unpack(np.array(tensor.data).reshape(-1)).reshape(shape)


def _q8_0(raw: npt.NDArray[np.uint8]) -> Array:
    """Blocks of 32: a float16 scale, 32 signed bytes."""
    blocks = raw.view(np.dtype([("scale", "<f2"), ("values", "i1", 32)]))
    return blocks["values"] * blocks["scale"].astype(np.float32)[:, None]


def _q4_1(raw: npt.NDArray[np.uint8]) -> Array:
    """Blocks of 32: a float16 scale and minimum, 16 bytes: the low halves are the first 16 values, the high the rest."""
    blocks = raw.view(np.dtype([("scale", "<f2"), ("least", "<f2"), ("nibbles", "u1", 16)]))
    values = np.hstack([blocks["nibbles"] & 15, blocks["nibbles"] >> 4])
    scale, least = (blocks[name].astype(np.float32)[:, None] for name in ("scale", "least"))
    return values * scale + least
