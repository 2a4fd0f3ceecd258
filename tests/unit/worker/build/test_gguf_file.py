"""GGUF files: every kind of weight, and what is refused rather than read wrongly, for ever, or at all."""

import struct
from dataclasses import replace
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ostraka_shared.errors import ModelError, SourceRefused, UnknownArchitecture
from ostraka_worker.build import stored_tensors
from ostraka_worker.build.checkpoint import read_checkpoint
from ostraka_worker.build.decoder import EMBEDDING, Checkpoint
from ostraka_worker.build.gguf_header import read_header
from ostraka_worker.build.progress import Silent
from ostraka_worker.build.tokenizer import build_tokenizer
from tests.unit.worker.build.forms import FORMS, Kind, random_tensors, write_gguf
from tests.unit.worker.build.packed_blocks import KINDS, ROW, random_rows
from tests.unit.worker.build.tiny import write_tiny

SMALL = FORMS["smollm2"]
WIDE = replace(FORMS["qwen3"], hidden=ROW, wide=ROW)


def read(path: Path) -> Checkpoint:
    return read_checkpoint(path, Silent())


@pytest.mark.parametrize("kind", KINDS)
def test_packed_weights_stand_for_what_the_format_says(
    tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stored_tensors, "PIECE_VALUES", 5 * ROW)  # and the pieces they are read in fit together
    packed, expected = random_rows(kind, WIDE.wide, ROW)
    path = write_gguf(tmp_path / "x.gguf", WIDE, random_tensors(WIDE))
    place = next(place for place in read_header(path).tensors if place.name == "blk.1.ffn_up.weight")
    write_packed(tmp_path / "y.gguf", packed, Kind[kind])
    ours = read(tmp_path / "y.gguf").layer(1, "ffn_up")
    assert ours.shape == tuple(place.shape)
    np.testing.assert_allclose(ours, expected, rtol=1e-5, atol=1e-6)


def write_packed(path: Path, packed: np.ndarray, kind: Kind) -> None:
    """The form WIDE with one tensor packed by hand."""
    tensors = random_tensors(WIDE)
    quantize = gguf.quantize

    def pack(tensor: np.ndarray, wanted: Kind) -> np.ndarray:
        return packed if tensor is tensors["model.layers.1.mlp.up_proj.weight"] else quantize(tensor, wanted)

    writer_add = gguf.GGUFWriter.add_tensor

    def add(self: gguf.GGUFWriter, name: str, tensor: np.ndarray, raw_dtype: Kind) -> None:
        writer_add(self, name, tensor, raw_dtype=kind if tensor is packed else raw_dtype)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gguf, "quantize", pack)
        patch.setattr(gguf.GGUFWriter, "add_tensor", add)
        write_gguf(path, WIDE, tensors)


@pytest.mark.parametrize("kind", [Kind.F32, Kind.F16, Kind.BF16])
@pytest.mark.parametrize("name", FORMS)
def test_unpacked_weights_are_read_as_they_are(tmp_path: Path, name: str, kind: Kind) -> None:
    form = FORMS[name]
    tensors = random_tensors(form)
    if kind == Kind.F16:
        tensors = {name: tensor.astype(np.float16).astype(np.float32) for name, tensor in tensors.items()}
    checkpoint = read(write_gguf(tmp_path / "x.gguf", form, tensors, kind))
    np.testing.assert_array_equal(checkpoint.tensors[EMBEDDING], tensors["model.embed_tokens.weight"])
    np.testing.assert_array_equal(checkpoint.layer(1, "attn_q"), tensors["model.layers.1.self_attn.q_proj.weight"])


def test_our_header_is_the_packages(tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "x.gguf", FORMS["qwen2"], random_tensors(FORMS["qwen2"]), Kind.F16)
    ours, theirs = read_header(path), gguf.GGUFReader(path)
    assert ours.settings == {n: f.contents() for n, f in theirs.fields.items() if not n.startswith("GGUF.")}
    assert [(t.name, t.offset, t.kind) for t in ours.tensors] == [
        (t.name, t.data_offset, t.tensor_type) for t in theirs.tensors
    ]


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"llama.rope.scaling.type": "linear"}, "rope scaling"),
        ({"llama.rope.scaling.type": "yarn"}, r"rope scaling \(llama.rope.scaling.type is 'yarn'\)"),
        ({"llama.rope.scaling.factor": 4.0}, "rope scaling"),
        ({"llama.rope.dimension_count": 8}, "rotated in part"),
        ({"llama.attention.value_length": 8}, "values of another width"),
        ({"llama.attention.sliding_window": 4096}, "a sliding window"),
        ({"llama.expert_count": 8}, "experts"),
        ({"llama.logit_scale": 0.5}, "scaled logits"),
        ({"llama.attention.causal": False}, "not causal"),
        ({"tokenizer.ggml.model": "llama"}, "only byte-level BPE"),
        ({"tokenizer.ggml.pre": None}, "'default' way"),
    ],
)
def test_another_model_is_refused_by_name(tmp_path: Path, changed: dict[str, Any], says: str) -> None:
    with pytest.raises(UnknownArchitecture, match=says):
        read(write_gguf(tmp_path / "x.gguf", SMALL, random_tensors(SMALL), settings=changed))


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"llama.block_count": None}, "lacks llama.block_count"),
        ({"llama.block_count": "two"}, "as 'two', where a whole number"),
        ({"llama.block_count": -2}, "-2 layers"),
        ({"llama.attention.head_count": 0}, "0 heads"),
        ({"llama.attention.head_count": [4, 4]}, r"as \[4, 4\]"),
        ({"llama.context_length": 2_000_000_000}, "context_tokens cannot be"),
        ({"llama.rope.freq_base": float("nan")}, "rope base"),
        ({"tokenizer.ggml.tokens": None}, "lacks tokenizer.ggml.tokens"),
        ({"tokenizer.ggml.tokens": [1, 2]}, "a list of texts"),
        ({"tokenizer.ggml.token_type": [1]}, "1 types"),
        ({"tokenizer.ggml.merges": ["a b c"]}, "no pair"),
        ({"tokenizer.ggml.bos_token_id": 100_000}, "begins with the piece 100000"),
        ({"split.count": 3}, "one of 3 parts"),
        ({"general.alignment": 3}, "its general.alignment is 3"),
    ],
)
def test_damaged_settings_are_refused(tmp_path: Path, changed: dict[str, Any], says: str) -> None:
    with pytest.raises(SourceRefused, match=says):
        read(write_gguf(tmp_path / "x.gguf", SMALL, random_tensors(SMALL), settings=changed))


def header(*parts: bytes, version: int = 3, tensors: int = 0, entries: int = 1) -> bytes:
    return b"GGUF" + struct.pack("<IQQ", version, tensors, entries) + b"".join(parts)


def text(value: str) -> bytes:
    return struct.pack("<Q", len(value)) + value.encode()


@pytest.mark.parametrize(
    "content",
    [
        header(version=1),
        b"GGUF" + struct.pack(">IQQ", 3, 0, 0),
        header(tensors=2**63, entries=0),
        header(entries=2**63),
        header(struct.pack("<Q", 2**63)),
        header(text("a"), struct.pack("<I", 99)),
        header(text("a"), struct.pack("<IIQ", 9, 4, 2**62), bytes(100)),
        header(text("a"), struct.pack("<IIQ", 9, 8, 2**62), bytes(100)),
        header(text("a"), *[struct.pack("<IIQ", 9, 9, 1)] * 5_000),
        header(text("a"), struct.pack("<I", 8), struct.pack("<Q", 2), b"\xff\xff"),
        header(text("t"), struct.pack("<I", 0), tensors=1, entries=0),
        header(text("t"), struct.pack("<I", 2**31), tensors=1, entries=0),
        header(text("t"), struct.pack("<IQQIQ", 2, 2**62, 2**62, 0, 0), tensors=1, entries=0),
        header(text("t"), struct.pack("<IQIQ", 1, 0, 0, 0), tensors=1, entries=0),
        header(text("t"), struct.pack("<IQIQ", 1, 5, 8, 0), bytes(500), tensors=1, entries=0),
        header(text("t"), struct.pack("<IQIQ", 1, 4, 0, 2**63), bytes(500), tensors=1, entries=0),
    ],
)
def test_a_damaged_head_is_refused_at_once(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "x.gguf"
    path.write_bytes(content)
    with pytest.raises(SourceRefused, match="not a readable GGUF file"):
        read(path)


def test_an_unknown_kind_of_weight_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.gguf"
    path.write_bytes(header(text("t"), struct.pack("<IQIQ", 1, 4, 9999, 0), bytes(500), tensors=1, entries=0))
    with pytest.raises(UnknownArchitecture, match="weights of kind 9999"):
        read(path)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, bytes]:
    path = write_tiny(tmp_path_factory.mktemp("gguf") / "x.gguf", layers=1)
    return path.with_name("damaged.gguf"), path.read_bytes()


@settings(max_examples=100)
@given(damage=st.lists(st.tuples(st.integers(0, 14_000), st.integers(0, 255)), min_size=1, max_size=4))
def test_any_damage_is_read_or_refused(whole: tuple[Path, bytes], damage: list[tuple[int, int]]) -> None:
    path, content = whole
    altered = bytearray(content)
    for at, byte in damage:
        altered[at] = byte
    path.write_bytes(altered)
    try:
        checkpoint = read(path)
        build_tokenizer(checkpoint.vocabulary)
        dict(checkpoint.tensors)
    except ModelError:  # and nothing else
        pass
