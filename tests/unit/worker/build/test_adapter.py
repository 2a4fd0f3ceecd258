"""Adapters: the merged model is the one computed apart in float64, and what does not fit is refused by name."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ostraka_shared.errors import SourceRefused
from ostraka_shared.model_folder import hash_file
from ostraka_worker.build import builder, catalog, embedded
from ostraka_worker.build.adapter import adapt, read_shipped
from ostraka_worker.build.adapter_file import (
    read_adapter,
    write_adapter,
)
from ostraka_worker.build.bfloat16 import as_bf16
from ostraka_worker.build.builder import build_adapted
from ostraka_worker.build.catalog import ShippedAdapter, find_embedded
from ostraka_worker.build.checkpoint import read_checkpoint
from ostraka_worker.build.progress import Silent
from ostraka_worker.build.reference import reference_logits
from ostraka_worker.build.safetensors_files import write_file
from ostraka_worker.engine import Line
from ostraka_worker.onnx_engine import OnnxEngine
from tests.unit.worker.build import plain_forward
from tests.unit.worker.build.forms import FORMS, gguf_name, random_tensors, write_folder, write_gguf
from tests.unit.worker.build.made_adapters import random_changes, record_of, write

IDS = (13, 14)
PROMPTS = [[1, 40, 13, 70, 41, 14, 66], [1, 90, 200, 14]]


@pytest.mark.parametrize("name", FORMS)
@pytest.mark.parametrize("layers", [1, 2])
def test_the_merged_model_is_that_of_a_float64_merge(tmp_path: Path, name: str, layers: int) -> None:
    form = FORMS[name]
    theirs = random_tensors(form)
    source = write_folder(tmp_path / "m", form, theirs)
    adapter = write(tmp_path / "a", source, layers=layers)
    base = read_checkpoint(source, Silent())
    merged = adapt(base, adapter, IDS)
    stored = adapter.changes()
    ours = {gguf_name(their): their for their in theirs}
    for linear, (a, b) in stored.low_rank.items():
        exact = theirs[ours[linear]] + b.astype(np.float64) @ a
        got = merged.tensors[linear]
        as_bf16(got)  # raises where it does not hold one of them
        np.testing.assert_allclose(got, exact, rtol=2**-8, atol=1e-6)
        theirs[ours[linear]] = got.astype(np.float64)
    theirs |= {ours[norm]: gain for norm, gain in stored.gains.items()}
    head = theirs.get("lm_head.weight", theirs["model.embed_tokens.weight"]).copy()
    head[list(IDS)] = stored.answers
    own = replace(form, layers=layers, is_tied=False)
    expected = [plain_forward.logits(own, theirs | {"lm_head.weight": head}, ids)[list(IDS)] for ids in PROMPTS]
    got = reference_logits(merged, [np.array(ids, np.uint32) for ids in PROMPTS], IDS, Silent())
    np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-4)
    assert len(merged.tensors) == len(list(merged.tensors))
    assert not any(f"blk.{layers}." in name for name in merged.tensors)
    np.testing.assert_array_equal(merged.embedding_rows(IDS), base.embedding_rows(IDS))
    np.testing.assert_array_equal(merged.tensors["output.weight"][list(IDS)], stored.answers)


def test_eight_bits_keep_what_a_change_changes(tmp_path: Path, tiny_gguf: Path) -> None:
    exact = random_changes(read_checkpoint(tiny_gguf, Silent()), 2)
    stored = write(tmp_path / "a", tiny_gguf).changes()
    for name, (a, b) in exact.low_rank.items():
        delta, kept = b @ a, stored.low_rank[name][1] @ stored.low_rank[name][0]
        assert np.linalg.norm(kept - delta) < 0.015 * np.linalg.norm(delta)
    for name, gain in exact.gains.items():
        np.testing.assert_array_equal(stored.gains[name], gain)
    np.testing.assert_array_equal(stored.answers, exact.answers)


@pytest.mark.parametrize("precision", catalog.PRECISIONS)
def test_a_built_folder_answers_as_the_adapted_checkpoint(tmp_path: Path, tiny_gguf: Path, precision: str) -> None:
    """The build's own check would have refused it otherwise; here its answers are seen to be changed ones."""
    adapter = write(tmp_path / "a", tiny_gguf, layers=1, no="a", yes="b")
    folder = build_adapted(adapter, tiny_gguf, tmp_path / "made", "tuned", precision, Silent())
    spec = folder.spec
    assert spec.source["adapter_sha256"] == hash_file(tmp_path / "a")
    assert (spec.contract.no, spec.contract.yes) == ("a", "b")
    base = read_checkpoint(tiny_gguf, Silent())
    ids = spec.answer_token_ids
    expected = reference_logits(adapt(base, adapter, ids), [np.array(PROMPTS[0], np.uint32)], ids, Silent())
    got = OnnxEngine(folder.graph).run([Line(np.array(PROMPTS[0], np.uint32))])
    np.testing.assert_allclose(got, expected, atol=1e-3 if precision == "fp32" else 0.3)
    again = write(tmp_path / "b", tiny_gguf, layers=2, no="a", yes="b")
    rebuilt = build_adapted(again, tiny_gguf, tmp_path / "made", "tuned", precision, Silent())
    assert rebuilt.fingerprint != folder.fingerprint


def test_the_embedded_model_with_a_shipped_adapter(
    tmp_path: Path, tiny_gguf: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(embedded, "fetch", lambda *_: tiny_gguf)
    monkeypatch.setattr(embedded, "extract", lambda *_: tiny_gguf)
    monkeypatch.setattr(catalog, "ADAPTERS_DIR", tmp_path)
    own = write(tmp_path / "own", tiny_gguf, base_sha256=embedded.EMBEDDED.sha256)
    monkeypatch.setattr(catalog, "EMBEDDED_ADAPTER", ShippedAdapter("own", own.sha256))
    folder = builder.ensure_embedded(tmp_path, "fp32", Silent())
    assert folder.spec.source == embedded.EMBEDDED.source | {"adapter": "own", "adapter_sha256": own.sha256}
    assert find_embedded(tmp_path, "fp32") is not None
    newer = ShippedAdapter("own", "0" * 64)
    monkeypatch.setattr(catalog, "EMBEDDED_ADAPTER", newer)
    assert find_embedded(tmp_path, "fp32") is None
    with pytest.raises(SourceRefused, match="not the expected file"):
        read_shipped(newer)


def test_what_is_shipped_is_the_file_that_is_expected() -> None:
    """Of the name that it is served by, and small enough for a wheel."""
    shipped = catalog.EMBEDDED_ADAPTER
    if shipped is None:
        assert list(catalog.ADAPTERS_DIR.glob("*")) == []
        return
    adapter = read_shipped(shipped)
    assert adapter.record.name == catalog.EMBEDDED_NAME
    assert adapter.record.base_sha256 == embedded.EMBEDDED.sha256
    assert (adapter.record.no, adapter.record.yes) == catalog.EMBEDDED_ANSWERS
    assert shipped.path.stat().st_size < 24_000_000


def test_the_documents_show_the_name_that_is_served() -> None:
    root = Path(__file__).parents[4]
    assert f'"model":"{catalog.EMBEDDED_NAME}"' in (root / "README.md").read_text(encoding="utf-8")
    assert f'"model": "{catalog.EMBEDDED_NAME}"' in (root / "docs" / "openapi.json").read_text(encoding="utf-8")


def test_an_adapter_of_another_checkpoint_is_refused(tmp_path: Path, tiny_gguf: Path) -> None:
    other = write_gguf(tmp_path / "other.gguf", FORMS["smollm2"], random_tensors(FORMS["smollm2"], seed=8))
    with pytest.raises(SourceRefused, match=r"made for another checkpoint than other\.gguf"):
        build_adapted(write(tmp_path / "a", tiny_gguf), other, tmp_path / "made", "tuned", "fp32", Silent())
    assert not (tmp_path / "made").exists()


def test_an_adapter_of_another_form_is_refused(tmp_path: Path, tiny_gguf: Path) -> None:
    wide = write_folder(tmp_path / "m", FORMS["qwen3"], random_tensors(FORMS["qwen3"]))
    adapter = write(tmp_path / "a", wide)
    base = read_checkpoint(tiny_gguf, Silent())
    with pytest.raises(SourceRefused, match=r"does not fit this checkpoint: blk\.0\.attn_output\.weight\.lora_a is"):
        adapt(base, adapter, IDS)
    deep = write(tmp_path / "b", tiny_gguf, layers=3)
    with pytest.raises(SourceRefused, match="keeps 3 layers of a checkpoint that has 2"):
        adapt(base, deep, IDS)


def _cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-40])


def _alter(path: Path) -> None:
    held = bytearray(path.read_bytes())
    held[-40] ^= 1
    path.write_bytes(held)


def _rewrite(**record: Any) -> Callable[[Path], None]:
    def write_other(path: Path) -> None:
        metadata = {"format": "ostraka-adapter-1", "record": json.dumps(record)}
        write_file(path, {"x": np.ones((1, 1), np.float32)}, metadata)

    return write_other


WHOLE: dict[str, Any] = {"name": "x", "base_sha256": "0", "layers": 1, "rank": 1, "no": "0", "yes": "1"}


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        (_cut, "ends before its tensor"),
        (_alter, "was altered since it was written"),
        (Path.unlink, "there is no file"),
        (lambda path: path.write_bytes(b"PK\x03\x04 a zip of pickles"), "not a readable safetensors file"),
        (lambda path: write_file(path, {"x": np.ones((1, 1), np.float32)}, {}), "not an adapter of the form"),
        (_rewrite(**WHOLE, surprise=1), "does not describe an adapter"),
        (_rewrite(**{**WHOLE, "layers": "2"}), "does not describe an adapter"),
        (_rewrite(**{**WHOLE, "no": ""}), "does not describe an adapter"),
        (_rewrite(**{**WHOLE, "name": "\ud800"}), "does not describe an adapter"),
    ],
)
def test_a_damaged_file_is_refused(tmp_path: Path, tiny_gguf: Path, damage: Callable[[Path], None], says: str) -> None:
    path = tmp_path / "a"
    write(path, tiny_gguf)
    damage(path)
    with pytest.raises(SourceRefused, match=says):
        read_adapter(path)


def test_values_that_are_no_numbers_are_refused(tmp_path: Path, tiny_gguf: Path) -> None:
    base = read_checkpoint(tiny_gguf, Silent())
    changes = random_changes(base, 2)
    changes.answers[0, 0] = np.nan
    write_adapter(tmp_path / "a", record_of(tiny_gguf), changes)
    merged = adapt(base, read_adapter(tmp_path / "a"), IDS)
    with pytest.raises(SourceRefused, match="holds values in answers that are no numbers"):
        merged.head_rows(IDS)
