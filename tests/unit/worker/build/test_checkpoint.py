from dataclasses import replace
from pathlib import Path

import gguf
import numpy as np
import pytest

from ostraka_shared.errors import SourceRefused, UnknownArchitecture
from ostraka_worker.build.builder import Form, build_source
from ostraka_worker.build.checkpoint import read_checkpoint
from ostraka_worker.build.decoder import EMBEDDING
from ostraka_worker.build.progress import Silent
from ostraka_worker.build.tokenizer import BpeVocabulary, build_tokenizer
from tests.unit.worker.build.conftest import Steps
from tests.unit.worker.build.forms import random_tensors, write_gguf
from tests.unit.worker.build.tiny import FORM


def test_config_vocabulary_and_tied_head(tiny_gguf: Path) -> None:
    checkpoint = read_checkpoint(tiny_gguf, Silent())
    config = checkpoint.config
    assert (config.layers, config.heads, config.kv_heads, config.head_dims) == (2, 4, 2, 16)
    assert (config.rope_base, config.context_tokens) == (10000.0, 512)
    assert checkpoint.vocabulary.bos == "<|im_start|>"
    np.testing.assert_array_equal(checkpoint.head_rows([7, 3]), checkpoint.tensors[EMBEDDING][[7, 3]])


def test_rotated_pairs_come_apart_into_halves(tiny_gguf: Path) -> None:
    native = {t.name: t.data for t in gguf.GGUFReader(tiny_gguf).tensors}["blk.0.attn_k.weight"]
    ours = read_checkpoint(tiny_gguf, Silent()).layer(0, "attn_k").reshape(FORM.kv_heads, 16, FORM.hidden)
    native = native.reshape(FORM.kv_heads, 16, FORM.hidden)
    np.testing.assert_array_equal(ours[:, :8], native[:, 0::2])
    np.testing.assert_array_equal(ours[:, 8:], native[:, 1::2])


def test_another_architecture_is_refused_by_name(tmp_path: Path) -> None:
    form = replace(FORM, architecture="mamba")
    with pytest.raises(UnknownArchitecture, match="cannot build a 'mamba' model: only llama, qwen2, qwen3"):
        read_checkpoint(write_gguf(tmp_path / "x.gguf", form, random_tensors(FORM)), Silent())


def test_it_is_refused_before_gigabytes_are_hashed(tmp_path: Path, steps: Steps) -> None:
    source = write_gguf(tmp_path / "x.gguf", replace(FORM, architecture="mamba"), random_tensors(FORM))
    with pytest.raises(UnknownArchitecture, match="cannot build a 'mamba' model"):
        build_source(source, tmp_path / "model", "x", "fp32", Form("0", "1"), steps)
    assert (steps.seen, list(tmp_path.iterdir())) == ([], [source])


def test_a_tensor_nobody_reads_is_refused(tmp_path: Path) -> None:
    tensors = random_tensors(FORM) | {"model.layers.0.self_attn.q_proj.bias": np.zeros(64, np.float32)}
    with pytest.raises(UnknownArchitecture, match=r"blk\.0\.attn_q\.bias"):
        read_checkpoint(write_gguf(tmp_path / "x.gguf", FORM, tensors), Silent())


def test_weights_of_an_unknown_kind_are_refused(tmp_path: Path) -> None:
    tensors = random_tensors(FORM)
    tensors["model.layers.1.mlp.up_proj.weight"] = np.zeros((FORM.wide, FORM.hidden), np.int32)
    with pytest.raises(UnknownArchitecture, match=r"I32 weights: blk\.1\.ffn_up"):
        read_checkpoint(write_gguf(tmp_path / "x.gguf", FORM, tensors), Silent())


def test_a_missing_tensor_is_refused(tmp_path: Path) -> None:
    tensors = random_tensors(FORM)
    del tensors["model.layers.1.mlp.up_proj.weight"]
    with pytest.raises(SourceRefused, match=r"lacks 1 tensors, blk\.1\.ffn_up\.weight"):
        read_checkpoint(write_gguf(tmp_path / "x.gguf", FORM, tensors), Silent())


@pytest.mark.parametrize("keep", [0, 3, 100, 5000, 60_000])
def test_a_truncated_file_is_refused(tiny_gguf: Path, tmp_path: Path, keep: int) -> None:
    cut = tmp_path / "cut.gguf"
    cut.write_bytes(tiny_gguf.read_bytes()[:keep])
    with pytest.raises(SourceRefused):
        read_checkpoint(cut, Silent())


def test_text_is_not_a_checkpoint(tmp_path: Path) -> None:
    (tmp_path / "x.gguf").write_text("Dear Sir or Madam, " * 100)
    with pytest.raises(SourceRefused, match="not a readable GGUF"):
        read_checkpoint(tmp_path / "x.gguf", Silent())


def test_another_way_of_splitting_text_is_refused(tmp_path: Path) -> None:
    form = replace(FORM, pre="tekken")
    with pytest.raises(UnknownArchitecture, match="'tekken' way: only smollm, llama-bpe, minicpm5, qwen2"):
        read_checkpoint(write_gguf(tmp_path / "x.gguf", form, random_tensors(form)), Silent())


def test_a_vocabulary_that_merges_what_it_lacks_is_refused() -> None:
    vocabulary = BpeVocabulary("smollm", ("a", "b"), (("a", "c"),), frozenset(), "a")
    with pytest.raises(SourceRefused, match="merges 'a' and 'c'"):
        build_tokenizer(vocabulary)


def test_special_text_is_parsed_digits_stand_alone_and_bytes_come_back(tiny_gguf: Path) -> None:
    tokenizer = build_tokenizer(read_checkpoint(tiny_gguf, Silent()).vocabulary)
    encoded = tokenizer.encode("<|im_start|>the 12 <|im_end|>", add_special_tokens=False)
    assert encoded.tokens == ["<|im_start|>", "t", "he", "Ġ", "1", "2", "Ġ", "<|im_end|>"]
    for text in ("naïve 日本語 😡\n\t\x00", "  two  spaces ", "</evidence>"):
        assert tokenizer.decode(tokenizer.encode(text, add_special_tokens=False).ids) == text
