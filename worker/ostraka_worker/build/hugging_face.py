"""A folder as Hugging Face's tools write it (config.json, safetensors, tokenizer.json) as a Checkpoint.

Defaults are those of `transformers`, which leaves out what equals them; what would be another model is refused by name.
"""

import json
from pathlib import Path
from typing import Any

from ostraka_shared.errors import SourceRefused, UnknownArchitecture
from ostraka_worker.build.decoder import ARCHITECTURES, EMBEDDING, HEAD, Checkpoint, Config, Tensor
from ostraka_worker.build.safetensors_files import INDEX, read_places, tensor_files
from ostraka_worker.build.settings import Settings, read_json
from ostraka_worker.build.stored_tensors import StoredTensors, refuse_unexpected
from ostraka_worker.build.tokenizer import TokenizerText

CONFIG = "config.json"
TOKENIZER = "tokenizer.json"
TOKENIZER_CONFIG = "tokenizer_config.json"
CLASSES = {"llama": "LlamaForCausalLM", "qwen2": "Qwen2ForCausalLM", "qwen3": "Qwen3ForCausalLM"}
WHOLE_NAMES = {
    "model.embed_tokens.weight": EMBEDDING,
    "model.norm.weight": "output_norm.weight",
    "lm_head.weight": HEAD,
}
LAYER_NAMES = {
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
# Angles that old checkpoints carry along; they follow from the configuration.
CARRIED_ALONG = "self_attn.rotary_emb.inv_freq"
# Settings that change what a tensor means: the key, the values that change nothing, what to call it.
REFUSED: tuple[tuple[str, tuple[object, ...], str], ...] = (
    ("hidden_act", ("silu", "swish"), "another activation than silu"),
    ("attention_bias", (False,), "attention biases other than qwen2's"),
    ("mlp_bias", (False,), "feed-forward biases"),
    ("use_sliding_window", (False,), "a sliding window"),
    ("partial_rotary_factor", (1,), "heads that are rotated in part"),
    ("num_experts", (0,), "experts"),
    ("num_local_experts", (0,), "experts"),
    ("quantization_config", (), "weights that were quantised; build the unquantised checkpoint"),
)


def source_files(folder: Path) -> list[Path]:
    """Every file a build reads, sorted by name. Raises UnknownArchitecture before it asks for what a model that cannot
    be built may lack, and SourceRefused where a file is missing."""
    if not (folder / CONFIG).is_file():
        raise SourceRefused(f"there is no {CONFIG} in {folder}: fetch the whole folder")
    _read_config(Settings(read_json(folder / CONFIG), folder / CONFIG))
    if not (folder / TOKENIZER).is_file():
        hint = "save it there with `save_pretrained` of its tokenizer"
        raise SourceRefused(f"there is no {TOKENIZER} in {folder}: {hint}")
    extra = [folder / name for name in (TOKENIZER_CONFIG, INDEX) if (folder / name).is_file()]
    return sorted([folder / CONFIG, folder / TOKENIZER, *extra, *tensor_files(folder)])


def read_folder(folder: Path) -> Checkpoint:
    """Raises SourceRefused or UnknownArchitecture."""
    source_files(folder)
    of = Settings(read_json(folder / CONFIG), folder / CONFIG)
    config = _read_config(of)
    is_tied = of.get("tie_word_embeddings") is True
    stored = {_gguf_name(name): place for name, place in read_places(folder).items() if not _is_ignored(name, is_tied)}
    shapes = {name: place.shape for name, place in stored.items()}
    refuse_unexpected(shapes, config, folder, is_tied=is_tied, named=_their_name)
    vocabulary = _read_vocabulary(folder, of, config)
    tensors = StoredTensors(stored, _as_it_is)
    return Checkpoint(config, vocabulary, tensors, tensors.in_bf16)


def _read_config(of: Settings) -> Config:
    architecture = of.text("model_type")
    if architecture not in ARCHITECTURES:
        raise UnknownArchitecture(
            f"cannot build a {architecture!r} model: only {', '.join(ARCHITECTURES)} are supported"
        )
    of.refuse("architectures", ([CLASSES[architecture]],), f"another head than {CLASSES[architecture]}'s")
    for key, harmless, what in REFUSED:
        of.refuse(key, harmless, what)
    kinds = of.get("layer_types")
    if kinds is not None and (not isinstance(kinds, list) or any(kind != "full_attention" for kind in kinds)):
        raise UnknownArchitecture("cannot build a model with layers of another kind than full attention (layer_types)")
    hidden, heads = of.whole("hidden_size"), of.whole("num_attention_heads")
    if heads < 1:
        raise SourceRefused(f"a model of {heads} heads cannot be")
    return Config(
        architecture=architecture,
        layers=of.whole("num_hidden_layers"),
        hidden=hidden,
        feed_forward=of.whole("intermediate_size"),
        heads=heads,
        kv_heads=of.whole("num_key_value_heads", heads if architecture == "llama" else 32),
        head_dims=of.whole("head_dim", 128 if architecture == "qwen3" else hidden // heads),
        rope_base=_rope_base(of),
        norm_epsilon=of.real("rms_norm_eps", 1e-6),
        context_tokens=of.whole("max_position_embeddings"),
        vocabulary_size=of.whole("vocab_size"),
    )


def _rope_base(of: Settings) -> float:
    """From `rope_theta`, or from `rope_parameters` as transformers 5 writes it."""
    base = of.real("rope_theta", 10000.0)
    for key in ("rope_scaling", "rope_parameters"):
        rope = of.inner(key)
        for kind in ("rope_type", "type"):
            rope.refuse(kind, ("default",), "rope scaling")
        rope.refuse("partial_rotary_factor", (1,), "heads that are rotated in part")
        base = rope.real("rope_theta", base)
    return base


def _gguf_name(name: str) -> str:
    """A name that is not known stays as it is, to be refused by it."""
    if name in WHOLE_NAMES:
        return WHOLE_NAMES[name]
    words = name.split(".", 3)
    if len(words) == 4 and words[:2] == ["model", "layers"]:
        part, _, kind = words[3].rpartition(".")
        if part in LAYER_NAMES:
            return f"blk.{words[2]}.{LAYER_NAMES[part]}.{kind}"
    return name


def _their_name(name: str) -> str:
    """What _gguf_name was given."""
    theirs = {ours: their for their, ours in (WHOLE_NAMES | LAYER_NAMES).items()}
    words = name.split(".", 3)
    if len(words) == 4 and words[2] in theirs:
        return f"model.layers.{words[1]}.{theirs[words[2]]}.{words[3]}"
    return theirs.get(name, name)


def _is_ignored(name: str, is_tied: bool) -> bool:  # noqa: FBT001
    """A tied head that lies in the file too is a copy: the embedding is what `transformers` reads."""
    return name.endswith(CARRIED_ALONG) or (is_tied and WHOLE_NAMES.get(name) == HEAD)


def _as_it_is(_: str, tensor: Tensor) -> Tensor:
    return tensor


def _read_vocabulary(folder: Path, of: Settings, config: Config) -> TokenizerText:
    path = folder / TOKENIZER
    try:
        text = path.read_text(encoding="utf-8")
    except ValueError as bad:
        raise SourceRefused(f"{path} is not a tokenizer ({bad}): fetch it again") from bad
    return TokenizerText(text, _begin(folder, of, text, config), config.vocabulary_size)


def _begin(folder: Path, of: Settings, tokenizer: str, config: Config) -> str:
    """The text of the token that begins every prompt, or nothing: qwen's has none, whatever id config.json names."""
    path = folder / TOKENIZER_CONFIG
    if path.is_file():
        values = read_json(path)
        begin = values.get("bos_token")
        if isinstance(begin, dict):
            begin = begin.get("content")
        if begin is not None and not isinstance(begin, str):
            raise SourceRefused(f"{path} has a bos_token that is no text: fetch it again")
        return begin or ""
    if of.get("bos_token_id") is None or config.architecture != "llama":
        return ""
    return _special_text(tokenizer, of.whole("bos_token_id"))


def _special_text(tokenizer: str, token_id: int) -> str:
    try:
        added: list[dict[str, Any]] = json.loads(tokenizer)["added_tokens"]
        return str(next(token["content"] for token in added if token["id"] == token_id))
    except (ValueError, TypeError, KeyError, StopIteration, RecursionError) as bad:
        raise SourceRefused(f"{TOKENIZER} has no special token {token_id}, which {CONFIG} begins with") from bad
