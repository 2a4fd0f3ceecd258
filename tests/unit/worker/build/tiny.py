"""A random llama checkpoint of a few kilobytes, as GGUF, so that a whole build takes a fraction of a second."""

import zipfile
from pathlib import Path

import gguf
import numpy as np
from tokenizers.pre_tokenizers import ByteLevel

LAYERS, HIDDEN, WIDE, HEADS, KV_HEADS, CONTEXT = 2, 64, 96, 4, 2, 512
SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
METADATA = "Metadata-Version: 2.1\nName: {}\nVersion: 1.0\n"
WHEEL = "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
MERGES = (("Ġ", "t"), ("h", "e"), ("Ġt", "he"), ("i", "s"), ("Ġ", "is"))


def write_tiny(
    path: Path,
    *,
    architecture: str = "llama",
    extra: str = "",
    without: str = "",
    whole: str = "",
    pre: str = "smollm",
    layers: int = LAYERS,
) -> Path:
    """`extra` and `without` name a tensor to add or to leave out, `whole` one to be of whole numbers."""
    writer = gguf.GGUFWriter(path, architecture)
    _write_config(writer, layers)
    _write_vocabulary(writer, pre)
    random = np.random.default_rng(7)
    for name, shape in _shapes(layers).items():
        if name == without:
            continue
        tensor = random.normal(1.0 if "norm" in name else 0.0, 0.25, shape).astype(np.float32)
        writer.add_tensor(name, tensor.astype(np.int32) if name == whole else tensor)
    if extra:
        writer.add_tensor(extra, np.zeros(HIDDEN, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def write_wheel(folder: Path, package: str, member: str, content: bytes) -> Path:
    """A wheel of version 1.0 that holds one file."""
    path = folder / f"{package}-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(f"{package}/{member}", content)
        for name, text in (("METADATA", METADATA.format(package)), ("WHEEL", WHEEL), ("RECORD", "")):
            archive.writestr(f"{package}-1.0.dist-info/{name}", text)
    return path


def pieces() -> list[str]:
    return [*SPECIAL, *sorted(ByteLevel.alphabet()), *(left + right for left, right in MERGES)]


def _write_config(writer: gguf.GGUFWriter, layers: int) -> None:
    writer.add_block_count(layers)
    writer.add_context_length(CONTEXT)
    writer.add_embedding_length(HIDDEN)
    writer.add_feed_forward_length(WIDE)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_freq_base(10000.0)
    writer.add_rope_dimension_count(HIDDEN // HEADS)


def _write_vocabulary(writer: gguf.GGUFWriter, pre: str) -> None:
    tokens = pieces()
    control, normal = gguf.TokenType.CONTROL, gguf.TokenType.NORMAL
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(pre)
    writer.add_token_list(tokens)
    writer.add_token_types([control if token in SPECIAL else normal for token in tokens])
    writer.add_token_merges([f"{left} {right}" for left, right in MERGES])
    writer.add_bos_token_id(1)


def _shapes(count: int) -> dict[str, tuple[int, ...]]:
    key = HIDDEN // HEADS * KV_HEADS
    layer = {
        "attn_norm": (HIDDEN,),
        "attn_q": (HIDDEN, HIDDEN),
        "attn_k": (key, HIDDEN),
        "attn_v": (key, HIDDEN),
        "attn_output": (HIDDEN, HIDDEN),
        "ffn_norm": (HIDDEN,),
        "ffn_gate": (WIDE, HIDDEN),
        "ffn_up": (WIDE, HIDDEN),
        "ffn_down": (HIDDEN, WIDE),
    }
    layers = {f"blk.{index}.{name}.weight": shape for index in range(count) for name, shape in layer.items()}
    return {"token_embd.weight": (len(pieces()), HIDDEN), "output_norm.weight": (HIDDEN,)} | layers
