"""Folders as Hugging Face's tools write them: read as the same model as a GGUF file, or refused in one clear line."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ostraka_shared.errors import ModelError, SourceRefused, UnknownArchitecture
from ostraka_worker.build import stored_tensors
from ostraka_worker.build.checkpoint import read_checkpoint
from ostraka_worker.build.decoder import Checkpoint
from ostraka_worker.build.hugging_face import source_files
from ostraka_worker.build.progress import Silent
from ostraka_worker.build.tokenizer import build_tokenizer
from tests.unit.worker.build.forms import FORMS, Form, random_tensors, write_folder, write_gguf, write_safetensors

SMALL = FORMS["smollm2"]
INDEX = "model.safetensors.index.json"


def read(folder: Path) -> Checkpoint:
    return read_checkpoint(folder, Silent())


def written(folder: Path, form: Form = SMALL, **how: Any) -> Path:
    return write_folder(folder / "m", form, random_tensors(form), **how)


def edit(path: Path, change: Callable[[dict[str, Any]], Any]) -> None:
    values = json.loads(path.read_text())
    change(values)
    path.write_text(json.dumps(values))


@pytest.mark.parametrize("name", FORMS)
@pytest.mark.parametrize(("dtype", "shards"), [("BF16", 1), ("BF16", 3), ("F32", 2), ("F16", 1)])
def test_a_folder_is_the_same_model_as_a_gguf_file(tmp_path: Path, name: str, dtype: str, shards: int) -> None:
    form, tensors = FORMS[name], random_tensors(FORMS[name])
    if dtype == "F16":
        tensors = {name: tensor.astype(np.float16).astype(np.float32) for name, tensor in tensors.items()}
    ours = read(write_folder(tmp_path / "m", form, tensors, dtype, shards))
    other = read(write_gguf(tmp_path / "m.gguf", form, tensors))
    # A GGUF stores these two as float32.
    for number in ("rope_base", "norm_epsilon"):
        assert getattr(ours.config, number) == pytest.approx(getattr(other.config, number), rel=1e-6)
    assert (ours.config.head_dims, ours.config.kv_heads) == (other.config.head_dims, other.config.kv_heads)
    assert ours.vocabulary.bos == other.vocabulary.bos == ("" if form.bos is None else form.specials[form.bos])
    assert ours.tensors.keys() == other.tensors.keys()
    for tensor in ours.tensors:
        np.testing.assert_array_equal(ours.tensors[tensor], other.tensors[tensor])


def test_settings_as_transformers_5_writes_them(tmp_path: Path) -> None:
    rope = {"rope_theta": 5e6, "rope_type": "default"}
    config = read(written(tmp_path, config={"rope_theta": None, "rope_scaling": None, "rope_parameters": rope})).config
    assert config.rope_base == 5e6


def test_what_is_left_out_has_the_default_of_transformers(tmp_path: Path) -> None:
    left_out = dict.fromkeys(("rope_theta", "head_dim", "rms_norm_eps", "architectures", "hidden_act"))
    config = read(written(tmp_path, config=left_out)).config
    assert (config.rope_base, config.head_dims, config.norm_epsilon) == (10000.0, 16, 1e-6)


def test_a_copy_of_a_tied_head_and_stored_angles_are_not_read(tmp_path: Path) -> None:
    tensors = random_tensors(SMALL)
    embedding = tensors["model.embed_tokens.weight"]
    tensors |= {"lm_head.weight": embedding * 2, "model.layers.0.self_attn.rotary_emb.inv_freq": np.ones(8)}
    checkpoint = read(write_folder(tmp_path / "m", SMALL, tensors))
    np.testing.assert_array_equal(checkpoint.head_rows([5]), embedding[[5]])


def test_the_beginning_without_a_tokenizer_config(tmp_path: Path) -> None:
    folder = written(tmp_path, config={"bos_token_id": 1})
    (folder / "tokenizer_config.json").unlink()
    assert read(folder).vocabulary.bos == "<|im_start|>"
    qwen = written(tmp_path / "qwen", FORMS["qwen3"], config={"bos_token_id": 0})
    (qwen / "tokenizer_config.json").unlink()
    assert read(qwen).vocabulary.bos == ""
    edit(folder / "config.json", lambda values: values.update(bos_token_id=99))
    with pytest.raises(SourceRefused, match="no special token 99"):
        read(folder)


@pytest.mark.parametrize("bos", ["<|im_start|>", {"content": "<|im_start|>", "lstrip": False}])
def test_both_ways_to_write_the_beginning(tmp_path: Path, bos: object) -> None:
    folder = written(tmp_path)
    (folder / "tokenizer_config.json").write_text(json.dumps({"bos_token": bos}))
    assert read(folder).vocabulary.bos == "<|im_start|>"


def test_a_tokenizer_that_cuts_and_fills_up_does_neither_here(tmp_path: Path) -> None:
    folder = written(tmp_path)
    cut = {"direction": "Right", "max_length": 4, "strategy": "LongestFirst", "stride": 0}
    fill = {"strategy": {"Fixed": 9}, "direction": "Right", "pad_id": 0, "pad_type_id": 0, "pad_token": "<|endoftext|>"}
    edit(
        folder / "tokenizer.json",
        lambda values: values.update(truncation=cut, padding=fill | {"pad_to_multiple_of": None}),
    )
    ids = build_tokenizer(read(folder).vocabulary).encode("abcdef", add_special_tokens=False).ids
    assert len(ids) == 6


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"model_type": "mamba"}, "cannot build a 'mamba' model: only llama, qwen2, qwen3"),
        ({"architectures": ["LlamaForSequenceClassification"]}, "another head than LlamaForCausalLM"),
        ({"rope_scaling": {"rope_type": "llama3", "factor": 8.0}}, r"rope scaling \(rope_type is 'llama3'\)"),
        ({"rope_scaling": {"type": "linear", "factor": 2.0}}, "rope scaling"),
        ({"rope_parameters": {"rope_type": "yarn", "rope_theta": 1e6}}, "rope scaling"),
        ({"rope_parameters": {"partial_rotary_factor": 0.5}}, "rotated in part"),
        ({"partial_rotary_factor": 0.5}, "rotated in part"),
        ({"use_sliding_window": True}, "a sliding window"),
        ({"layer_types": ["full_attention", "sliding_attention"]}, "another kind than full attention"),
        ({"hidden_act": "gelu"}, "another activation"),
        ({"attention_bias": True}, "attention biases"),
        ({"mlp_bias": True}, "feed-forward biases"),
        ({"num_local_experts": 8}, "experts"),
        ({"quantization_config": {"quant_method": "gptq"}}, "build the unquantised checkpoint"),
    ],
)
def test_another_model_is_refused_by_name(tmp_path: Path, changed: dict[str, Any], says: str) -> None:
    with pytest.raises(UnknownArchitecture, match=says):
        read(written(tmp_path, config=changed))


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"hidden_size": None}, "lacks hidden_size"),
        ({"hidden_size": "64"}, "hidden_size as '64', where a whole number"),
        ({"hidden_size": True}, "hidden_size as True"),
        ({"hidden_size": 64.0}, "hidden_size as 64.0"),
        ({"num_attention_heads": 0}, "0 heads"),
        ({"num_attention_heads": -4}, "-4 heads"),
        ({"num_key_value_heads": 3}, "4 query heads cannot share 3"),
        ({"num_hidden_layers": 10**30}, "layers cannot be"),
        ({"max_position_embeddings": 10**15}, "context_tokens cannot be"),
        ({"max_position_embeddings": 0}, "context_tokens cannot be"),
        ({"head_dim": 15}, "rotated in pairs"),
        ({"rms_norm_eps": float("nan")}, "norm epsilon"),
        ({"rope_theta": float("inf")}, "rope base"),
        ({"rope_theta": 10**400}, "rope_theta"),
        ({"rope_scaling": "llama3"}, "rope_scaling as 'llama3', where an object"),
        ({"model_type": ["llama"]}, "model_type as "),
        ({"vocab_size": 10}, "ids"),
    ],
)
def test_hostile_settings_are_refused(tmp_path: Path, changed: dict[str, Any], says: str) -> None:
    with pytest.raises(ModelError) as refused:
        build_tokenizer(read(written(tmp_path, config=changed)).vocabulary)
    assert says in str(refused.value) or changed == {"vocab_size": 10}
    assert len(str(refused.value)) < 500


@pytest.mark.parametrize("name", ["config.json", "tokenizer.json", "tokenizer_config.json", INDEX])
@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"null", b"\xff\xfe", b"[" * 100_000, b'{"a":' * 100_000])
def test_hostile_json_is_refused(tmp_path: Path, name: str, content: bytes) -> None:
    folder = written(tmp_path, shards=2)
    (folder / name).write_bytes(content)
    with pytest.raises(SourceRefused):
        build_tokenizer(read(folder).vocabulary)


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("config.json", "no config.json"),
        ("tokenizer.json", "no tokenizer.json.*save_pretrained"),
        ("model.safetensors", "neither model.safetensors nor"),
    ],
)
def test_a_missing_file_is_named(tmp_path: Path, name: str, says: str) -> None:
    folder = written(tmp_path)
    (folder / name).unlink()
    with pytest.raises(SourceRefused, match=says):
        read(folder)


def test_what_cannot_be_built_is_refused_before_its_files_are_asked_for(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "gptj"}')
    with pytest.raises(UnknownArchitecture, match="cannot build a 'gptj' model: only llama"):
        source_files(tmp_path)


def test_pickled_weights_are_never_read(tmp_path: Path) -> None:
    folder = written(tmp_path)
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    with pytest.raises(SourceRefused, match="no pickle is ever read"):
        read(folder)


def test_a_missing_tensor_is_named_as_the_folder_names_it(tmp_path: Path) -> None:
    tensors = random_tensors(SMALL)
    del tensors["model.layers.1.mlp.up_proj.weight"]
    with pytest.raises(SourceRefused, match=r"lacks 1 tensors, model\.layers\.1\.mlp\.up_proj\.weight first"):
        read(write_folder(tmp_path / "m", SMALL, tensors))
    with pytest.raises(SourceRefused, match=r"lm_head\.weight"):
        read(written(tmp_path / "untied", config={"tie_word_embeddings": False}))


@pytest.mark.parametrize("extra", ["model.layers.0.self_attn.q_proj.bias", "model.layers.0.mlp.router.weight", "odd"])
def test_a_tensor_nobody_reads_is_refused(tmp_path: Path, extra: str) -> None:
    tensors = random_tensors(SMALL) | {extra: np.zeros(64, np.float32)}
    with pytest.raises(UnknownArchitecture, match=extra.replace(".", r"\.")):
        read(write_folder(tmp_path / "m", SMALL, tensors))


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda index: index["weight_map"].update({"x": "model-00009-of-00009.safetensors"}), "is not there"),
        (lambda index: index["weight_map"].update({"x": "../../m/model.safetensors"}), "no safetensors file of its"),
        (lambda index: index["weight_map"].update({"x": "tokenizer.json"}), "no safetensors file of its"),
        (lambda index: index["weight_map"].update({"x": 5}), "no weight_map"),
        (lambda index: index.update(weight_map=[]), "no weight_map"),
        (lambda index: index["weight_map"].popitem(), "not of the same checkpoint"),
        (lambda index: index["weight_map"].update({"x": "model-00001-of-00002.safetensors"}), "not of the same"),
    ],
)
def test_an_index_that_does_not_fit_is_refused(tmp_path: Path, change: Callable[..., Any], says: str) -> None:
    folder = written(tmp_path, shards=2)
    edit(folder / INDEX, change)
    with pytest.raises(SourceRefused, match=says):
        read(folder)


def head_of(path: Path, head: bytes) -> None:
    path.write_bytes(len(head).to_bytes(8, "little") + head + bytes(1000))


@pytest.mark.parametrize("keep", [0, 4, 8, 300, -1])
def test_a_shard_cut_short_is_refused(tmp_path: Path, keep: int) -> None:
    folder = written(tmp_path, shards=2)
    shard = folder / "model-00002-of-00002.safetensors"
    shard.write_bytes(shard.read_bytes()[:keep])
    with pytest.raises(SourceRefused, match="model-00002-of-00002"):
        read(folder)


@pytest.mark.parametrize(
    "entry",
    [
        5,
        {},
        {"dtype": "F32", "shape": [2], "data_offsets": [0]},
        {"dtype": "F32", "shape": [2], "data_offsets": [0, 9]},
        {"dtype": "F32", "shape": [-2], "data_offsets": [0, -8]},
        {"dtype": "F32", "shape": [10**30], "data_offsets": [0, 8]},
        {"dtype": "F32", "shape": [True, 2], "data_offsets": [0, 8]},
        {"dtype": "F32", "shape": [2.0], "data_offsets": [0, 8]},
        {"dtype": "F32", "shape": "ab", "data_offsets": [0, 8]},
        {"dtype": "F32", "shape": [], "data_offsets": [0, 4]},
        {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]},
        {"dtype": ["F32"], "shape": [2], "data_offsets": [0, 8]},
        {"dtype": "F8_E4M3", "shape": [2], "data_offsets": [0, 2]},
    ],
)
def test_a_damaged_head_is_refused(tmp_path: Path, entry: object) -> None:
    folder = written(tmp_path)
    head_of(folder / "model.safetensors", json.dumps({"model.norm.weight": entry}).encode())
    with pytest.raises(ModelError, match=r"model\.norm\.weight"):
        read(folder)


@pytest.mark.parametrize("head", [b"[]", b"{", b"\xff\xff", b"[" * 50_000])
def test_a_head_that_is_no_object_is_refused(tmp_path: Path, head: bytes) -> None:
    folder = written(tmp_path)
    head_of(folder / "model.safetensors", head)
    with pytest.raises(SourceRefused, match="not a readable safetensors file"):
        read(folder)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_weights_that_are_no_numbers_are_refused_when_they_are_read(tmp_path: Path, value: float) -> None:
    folder = written(tmp_path)
    tensors = random_tensors(SMALL)
    tensors["model.layers.1.mlp.up_proj.weight"][3, 5] = value
    write_safetensors(folder / "model.safetensors", tensors)
    checkpoint = read(folder)
    with pytest.raises(SourceRefused, match=r"blk\.1\.ffn_up\.weight that are no numbers"):
        checkpoint.layer(1, "ffn_up")


def test_the_embedding_comes_in_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stored_tensors, "PIECE_VALUES", 100 * SMALL.hidden)
    folder = written(tmp_path)
    checkpoint, embedding = read(folder), random_tensors(SMALL)["model.embed_tokens.weight"]
    assert [len(piece) for piece in checkpoint.embedding_pieces()] == [100, 100, len(embedding) - 200]
    ids = [0, 268, 99, 100, 5, 5]
    np.testing.assert_array_equal(checkpoint.embedding_rows(ids), embedding[ids])
    np.testing.assert_array_equal(checkpoint.head_rows(ids), embedding[ids])
    whole = Checkpoint(checkpoint.config, checkpoint.vocabulary, dict(checkpoint.tensors))
    np.testing.assert_array_equal(whole.embedding_rows(ids), embedding[ids])
    damaged = random_tensors(SMALL)
    damaged["model.embed_tokens.weight"][250, 3] = np.nan
    write_safetensors(folder / "model.safetensors", damaged)
    with pytest.raises(SourceRefused, match=r"token_embd\.weight that are no numbers"):
        read(folder).embedding_rows([0])


def test_a_file_that_shrinks_while_it_is_read_is_refused(tmp_path: Path) -> None:
    folder = written(tmp_path)
    checkpoint = read(folder)
    shard = folder / "model.safetensors"
    shard.write_bytes(shard.read_bytes()[:1000])
    with pytest.raises(SourceRefused, match="became shorter"):
        checkpoint.layer(1, "ffn_up")


def test_a_tokenizer_of_another_model_is_refused(tmp_path: Path) -> None:
    folder = written(tmp_path)
    edit(folder / "tokenizer.json", lambda values: values["model"]["vocab"].update({"zz": 9000}))
    with pytest.raises(SourceRefused, match="id 9000"):
        build_tokenizer(read(folder).vocabulary)


def test_a_tokenizer_that_merges_across_lines_is_refused(tmp_path: Path) -> None:
    folder = written(tmp_path)
    edit(folder / "tokenizer.json", lambda values: values["model"]["vocab"].update({"ĊA": 7}))
    edit(folder / "tokenizer.json", lambda values: values["model"]["merges"].append(["Ċ", "A"]))
    edit(folder / "tokenizer.json", lambda values: values["pre_tokenizer"].update(use_regex=False))
    with pytest.raises(UnknownArchitecture, match="merges across lines"):
        build_tokenizer(read(folder).vocabulary)
