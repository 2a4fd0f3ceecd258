from pathlib import Path

import gguf
import numpy as np
import pytest

from ostraka_shared.errors import SourceRefused, UnknownArchitecture
from ostraka_worker.build.checkpoint import Vocabulary, read_checkpoint
from ostraka_worker.build.progress import Silent
from ostraka_worker.build.tokenizer import build_tokenizer
from tests.unit.worker.build.tiny import HIDDEN, KV_HEADS, write_tiny


def test_config_vocabulary_and_tied_head(tiny_gguf: Path) -> None:
    checkpoint = read_checkpoint(tiny_gguf, Silent())
    config = checkpoint.config
    assert (config.layers, config.heads, config.kv_heads, config.head_dims) == (2, 4, 2, 16)
    assert (config.rope_base, config.context_tokens) == (10000.0, 512)
    assert checkpoint.vocabulary.bos == "<|im_start|>"
    assert checkpoint.head is checkpoint.embedding


def test_rotated_pairs_come_apart_into_halves(tiny_gguf: Path) -> None:
    native = {t.name: t.data for t in gguf.GGUFReader(tiny_gguf).tensors}["blk.0.attn_k.weight"]
    ours = read_checkpoint(tiny_gguf, Silent()).layer(0, "attn_k").reshape(KV_HEADS, 16, HIDDEN)
    native = native.reshape(KV_HEADS, 16, HIDDEN)
    np.testing.assert_array_equal(ours[:, :8], native[:, 0::2])
    np.testing.assert_array_equal(ours[:, 8:], native[:, 1::2])


def test_another_architecture_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(UnknownArchitecture, match="cannot build a 'mamba' model: only llama"):
        read_checkpoint(write_tiny(tmp_path / "x.gguf", architecture="mamba"), Silent())


def test_a_tensor_nobody_reads_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UnknownArchitecture, match=r"blk\.0\.attn_q\.bias"):
        read_checkpoint(write_tiny(tmp_path / "x.gguf", extra="blk.0.attn_q.bias"), Silent())


def test_weights_of_an_unknown_kind_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UnknownArchitecture, match=r"I32 weights: blk\.1\.ffn_up"):
        read_checkpoint(write_tiny(tmp_path / "x.gguf", whole="blk.1.ffn_up.weight"), Silent())


def test_a_missing_tensor_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SourceRefused, match=r"lacks 1 tensors, blk\.1\.ffn_up\.weight"):
        read_checkpoint(write_tiny(tmp_path / "x.gguf", without="blk.1.ffn_up.weight"), Silent())


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
    checkpoint = read_checkpoint(write_tiny(tmp_path / "x.gguf", pre="qwen2"), Silent())
    with pytest.raises(UnknownArchitecture, match="qwen2"):
        build_tokenizer(checkpoint.vocabulary)


def test_a_vocabulary_that_merges_what_it_lacks_is_refused() -> None:
    vocabulary = Vocabulary("smollm", ("a", "b"), (("a", "c"),), frozenset(), "a")
    with pytest.raises(SourceRefused, match="merges 'a' and 'c'"):
        build_tokenizer(vocabulary)


def test_special_text_is_parsed_digits_stand_alone_and_bytes_come_back(tiny_gguf: Path) -> None:
    tokenizer = build_tokenizer(read_checkpoint(tiny_gguf, Silent()).vocabulary)
    encoded = tokenizer.encode("<|im_start|>the 12 <|im_end|>", add_special_tokens=False)
    assert encoded.tokens == ["<|im_start|>", "t", "he", "Ġ", "1", "2", "Ġ", "<|im_end|>"]
    for text in ("naïve 日本語 😡\n\t\x00", "  two  spaces ", "</evidence>"):
        assert tokenizer.decode(tokenizer.encode(text, add_special_tokens=False).ids) == text
