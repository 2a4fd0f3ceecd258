"""Random checkpoints of a few hundred kilobytes, of the exact form of real ones, as GGUF or as a Hugging Face folder.

The tensors have Hugging Face's names and values that bfloat16 holds, so that every unquantised form is the same model.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gguf
import numpy as np
from tokenizers import AddedToken, Tokenizer, decoders, pre_tokenizers
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import ByteLevel

Tensors = dict[str, np.ndarray]
Kind = gguf.GGMLQuantizationType

MERGES = (("Ġ", "t"), ("h", "e"), ("Ġt", "he"), ("i", "s"), ("Ġ", "is"))
GGUF_NAMES = {
    "model.embed_tokens.weight": "token_embd.weight",
    "model.norm.weight": "output_norm.weight",
    "lm_head.weight": "output.weight",
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}


@dataclass(frozen=True)
class Form:
    architecture: str
    pre: str
    specials: tuple[str, ...]
    bos: int | None
    layers: int = 2
    hidden: int = 64
    wide: int = 96
    heads: int = 4
    kv_heads: int = 2
    head_dims: int = 16
    is_tied: bool = True
    rope_base: float = 10000.0
    epsilon: float = 1e-5
    context: int = 512

    @property
    def pieces(self) -> list[str]:
        return [*self.specials, *sorted(ByteLevel.alphabet()), *(left + right for left, right in MERGES)]


CHAT = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
FORMS = {
    "smollm2": Form("llama", "smollm", CHAT, 1),
    # jevos's: heads wider than hidden / heads, 8 query heads on a key head, an own head, a slow rotation.
    "minicpm5": Form(
        "llama",
        "minicpm5",
        ("<s>", "</s>"),
        0,
        hidden=96,
        heads=16,
        kv_heads=2,
        head_dims=128,
        is_tied=False,
        rope_base=5e6,
        epsilon=1e-6,
    ),
    "llama3": Form("llama", "llama-bpe", ("<|begin_of_text|>", "<|end_of_text|>"), 0, rope_base=5e5, is_tied=False),
    "qwen2": Form("qwen2", "qwen2", CHAT, None, heads=6, kv_heads=2, hidden=96, rope_base=1e6, epsilon=1e-6),
    "qwen3": Form("qwen3", "qwen2", CHAT, None, heads=4, kv_heads=1, head_dims=32, rope_base=1e6, epsilon=1e-6),
}


def as_bfloat16(values: np.ndarray) -> np.ndarray:
    """The nearest below: enough to make a value that bfloat16 holds."""
    return (np.ascontiguousarray(values, np.float32).view(np.uint32) & 0xFFFF0000).view(np.float32)


def random_tensors(form: Form, seed: int = 7) -> Tensors:
    random = np.random.default_rng(seed)
    return {
        name: as_bfloat16(random.normal(1.0 if "norm" in name else 0.0, 0.25, shape))
        for name, shape in shapes(form).items()
    }


def shapes(form: Form) -> dict[str, tuple[int, ...]]:
    hidden, query, key = form.hidden, form.heads * form.head_dims, form.kv_heads * form.head_dims
    layer: dict[str, tuple[int, ...]] = {
        "input_layernorm.weight": (hidden,),
        "self_attn.q_proj.weight": (query, hidden),
        "self_attn.k_proj.weight": (key, hidden),
        "self_attn.v_proj.weight": (key, hidden),
        "self_attn.o_proj.weight": (hidden, query),
        "post_attention_layernorm.weight": (hidden,),
        "mlp.gate_proj.weight": (form.wide, hidden),
        "mlp.up_proj.weight": (form.wide, hidden),
        "mlp.down_proj.weight": (hidden, form.wide),
    }
    if form.architecture == "qwen2":
        layer |= {f"self_attn.{part}_proj.bias": (size,) for part, size in (("q", query), ("k", key), ("v", key))}
    if form.architecture == "qwen3":
        layer |= {f"self_attn.{part}_norm.weight": (form.head_dims,) for part in "qk"}
    vocabulary = (len(form.pieces), hidden)
    whole = {"model.embed_tokens.weight": vocabulary, "model.norm.weight": (hidden,)}
    if not form.is_tied:
        whole["lm_head.weight"] = vocabulary
    return whole | {f"model.layers.{i}.{name}": shape for i in range(form.layers) for name, shape in layer.items()}


def gguf_name(name: str) -> str:
    if name in GGUF_NAMES:
        return GGUF_NAMES[name]
    _, _, index, rest = name.split(".", 3)
    part, suffix = rest.rsplit(".", 1)
    return f"blk.{index}.{GGUF_NAMES[part]}.{suffix}"


def interleaved(form: Form, name: str, tensor: np.ndarray) -> np.ndarray:
    """Llama's query and key as GGUF has them: the two of a rotated pair side by side."""
    heads = {"q_proj.weight": form.heads, "k_proj.weight": form.kv_heads}.get(".".join(name.rsplit(".", 2)[-2:]))
    if heads is None or form.architecture != "llama":
        return tensor
    halves = tensor.reshape(heads, 2, form.head_dims // 2, form.hidden)
    return np.ascontiguousarray(halves.transpose(0, 2, 1, 3)).reshape(tensor.shape)


def write_gguf(
    path: Path,
    form: Form,
    tensors: Tensors,
    kind: Kind = Kind.F32,
    settings: dict[str, Any] | None = None,
) -> Path:
    """Matrices in `kind`, all else in float32; whole numbers as they are. `settings` are added, or replace what has their key."""
    writer = gguf.GGUFWriter(path, form.architecture)
    _write_settings(writer, form, settings or {})
    for name, tensor in tensors.items():
        if tensor.dtype == np.int32:
            writer.add_tensor(gguf_name(name), tensor)
            continue
        native, packing = interleaved(form, name, tensor), kind if tensor.ndim == 2 else Kind.F32
        writer.add_tensor(gguf_name(name), gguf.quantize(native, packing), raw_dtype=packing)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _write_settings(writer: gguf.GGUFWriter, form: Form, settings: dict[str, Any]) -> None:
    control, normal = gguf.TokenType.CONTROL, gguf.TokenType.NORMAL
    of = f"{form.architecture}."
    values: dict[str, Any] = {
        f"{of}block_count": form.layers,
        f"{of}context_length": form.context,
        f"{of}embedding_length": form.hidden,
        f"{of}feed_forward_length": form.wide,
        f"{of}attention.head_count": form.heads,
        f"{of}attention.head_count_kv": form.kv_heads,
        f"{of}attention.key_length": form.head_dims,
        f"{of}attention.value_length": form.head_dims,
        f"{of}attention.layer_norm_rms_epsilon": form.epsilon,
        f"{of}rope.freq_base": form.rope_base,
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": form.pre,
        "tokenizer.ggml.tokens": form.pieces,
        "tokenizer.ggml.token_type": [int(control if p in form.specials else normal) for p in form.pieces],
        "tokenizer.ggml.merges": [" ".join(merge) for merge in MERGES],
        # The converter names an end of text where a model has no beginning.
        "tokenizer.ggml.bos_token_id": form.bos or 0,
    }
    for key, value in (values | settings).items():
        if value is not None:
            _add(writer, key, value)


def _add(writer: gguf.GGUFWriter, key: str, value: Any) -> None:
    if isinstance(value, list):
        writer.add_array(key, value)
    else:
        add = {bool: writer.add_bool, int: writer.add_int32, float: writer.add_float32, str: writer.add_string}
        add[type(value)](key, value)


def write_folder(
    folder: Path,
    form: Form,
    tensors: Tensors,
    dtype: str = "BF16",
    shards: int = 1,
    config: dict[str, Any] | None = None,
) -> Path:
    """`config` replaces what has its key; None removes it."""
    folder.mkdir(parents=True, exist_ok=True)
    values = config_json(form) | (config or {})
    (folder / "config.json").write_text(json.dumps({k: v for k, v in values.items() if v is not None}))
    tokenizer(form).save(str(folder / "tokenizer.json"))
    bos = form.specials[form.bos] if form.bos is not None else None
    (folder / "tokenizer_config.json").write_text(json.dumps({"bos_token": bos}))
    names = list(tensors)
    if shards == 1:
        write_safetensors(folder / "model.safetensors", tensors, dtype)
        return folder
    weight_map = {name: f"model-{i % shards + 1:05}-of-{shards:05}.safetensors" for i, name in enumerate(names)}
    for shard in sorted(set(weight_map.values())):
        held = {name: tensors[name] for name in names if weight_map[name] == shard}
        write_safetensors(folder / shard, held, dtype)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": weight_map}))
    return folder


def config_json(form: Form) -> dict[str, Any]:
    names = {"llama": "LlamaForCausalLM", "qwen2": "Qwen2ForCausalLM", "qwen3": "Qwen3ForCausalLM"}
    return {
        "architectures": [names[form.architecture]],
        "model_type": form.architecture,
        "hidden_act": "silu",
        "hidden_size": form.hidden,
        "intermediate_size": form.wide,
        "num_hidden_layers": form.layers,
        "num_attention_heads": form.heads,
        "num_key_value_heads": form.kv_heads,
        "head_dim": form.head_dims,
        "rms_norm_eps": form.epsilon,
        "rope_theta": form.rope_base,
        "rope_scaling": None,
        "max_position_embeddings": form.context,
        "vocab_size": len(form.pieces),
        "tie_word_embeddings": form.is_tied,
    }


def write_safetensors(path: Path, tensors: Tensors, dtype: str = "F32") -> None:
    to_bytes = {
        "F32": lambda t: t.astype("<f4").tobytes(),
        "F16": lambda t: t.astype("<f2").tobytes(),
        "BF16": lambda t: (np.ascontiguousarray(t, np.float32).view("<u4") >> 16).astype("<u2").tobytes(),
    }[dtype]
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    content = b""
    for name, tensor in tensors.items():
        raw = to_bytes(tensor)
        offsets = [len(content), len(content) + len(raw)]
        header[name] = {"dtype": dtype, "shape": list(tensor.shape), "data_offsets": offsets}
        content += raw
    head = json.dumps(header).encode()
    head += b" " * (-len(head) % 8)
    path.write_bytes(len(head).to_bytes(8, "little") + head + content)


def tokenizer(form: Form) -> Tokenizer:
    made = Tokenizer(BPE(vocab={piece: i for i, piece in enumerate(form.pieces)}, merges=list(MERGES)))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    made.add_special_tokens([AddedToken(piece, special=True, normalized=False) for piece in form.specials])
    return made
