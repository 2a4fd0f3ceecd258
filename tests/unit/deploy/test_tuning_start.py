"""What a tuning starts from: the embedded model as it is served, a checkpoint of one's own, or an adapter of it."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from ostraka.tuning.parameters import HIGH, changes_of
from ostraka.tuning.start import DEFAULT_RANK, Wanted, build_tuned, open_start
from ostraka_shared.errors import ConfigError, SourceRefused
from ostraka_worker.build import catalog, embedded
from ostraka_worker.build.adapter_file import ANSWERS, Adapter, read_adapter, write_adapter
from ostraka_worker.build.catalog import ShippedAdapter
from ostraka_worker.build.progress import Silent
from tests.unit.worker.build.forms import FORMS, random_tensors, write_gguf
from tests.unit.worker.build.tiny import write_tiny


@pytest.fixture
def wanted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Wanted:
    """Of the embedded model, whose checkpoint is a tiny one here, and which comes with no adapter."""
    tiny = write_tiny(tmp_path / "tiny.gguf")
    monkeypatch.setattr(embedded, "fetch", lambda *_: tiny)
    monkeypatch.setattr(embedded, "extract", lambda *_: tiny)
    monkeypatch.setattr(catalog, "EMBEDDED_ADAPTER", None)
    monkeypatch.setattr(catalog, "ADAPTERS_DIR", tmp_path)
    return Wanted(None, None, None, None, 1, tmp_path / "cache")


def write(path: Path, wanted: Wanted, **changed: object) -> Adapter:
    """An adapter of rank 4 that keeps one layer, all its values drawn."""
    start = open_start(replace(wanted, rank=4, layers=1), path.parent, Silent())
    random = np.random.default_rng(6)
    drawn = {
        name: (value + random.normal(0, 0.05, value.shape)).astype(np.float32)
        for name, value in start.parameters.items()
    }
    record = replace(start.record, name="tuned", **changed)
    write_adapter(path, record, changes_of(drawn, start.config, temperature=2.0))
    return read_adapter(path)


def test_a_new_adapter_changes_nothing_yet(wanted: Wanted, tmp_path: Path) -> None:
    start = open_start(wanted, tmp_path, Silent())
    assert (start.record.rank, start.record.layers) == (DEFAULT_RANK, 2)
    assert (start.contract.bos, start.contract.no, start.contract.yes) == ("<|im_start|>", "0", "1")
    assert start.source == embedded.EMBEDDED.source
    assert not any(value.any() for name, value in start.parameters.items() if name.endswith(HIGH))
    np.testing.assert_array_equal(start.parameters["blk.1.ffn_norm.weight"], start.checkpoint.layer(1, "ffn_norm"))
    other = open_start(replace(wanted, seed=2), tmp_path, Silent())
    name = "blk.0.attn_q.weight.lora_a"
    assert (other.parameters[name] != start.parameters[name]).any()


def test_the_embedded_model_is_gone_on_with_as_it_is_served(
    wanted: Wanted, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shipped = write(tmp_path / "shipped", wanted)
    monkeypatch.setattr(catalog, "EMBEDDED_ADAPTER", ShippedAdapter("shipped", shipped.sha256))
    start = open_start(wanted, tmp_path, Silent())
    assert (start.record.rank, start.record.layers, start.config.layers) == (4, 1, 1)
    assert start.source["adapter_sha256"] == shipped.sha256
    np.testing.assert_array_equal(start.parameters[ANSWERS], shipped.changes().answers)
    bare = open_start(replace(wanted, adapter="none"), tmp_path, Silent())
    assert bare.record.layers == 2
    with pytest.raises(ConfigError, match="--rank and --layers are for a new adapter: shipped has its own"):
        open_start(replace(wanted, rank=8), tmp_path, Silent())
    folder = build_tuned(wanted, shipped, tmp_path / "made", "fp32", Silent())
    assert (folder.spec.name, folder.spec.source["adapter"]) == ("tuned", "shipped")


def test_an_adapter_of_another_checkpoint_is_refused(wanted: Wanted, tmp_path: Path) -> None:
    other = write_gguf(tmp_path / "other.gguf", FORMS["smollm2"], random_tensors(FORMS["smollm2"], seed=8))
    write(tmp_path / "a", wanted)
    with pytest.raises(SourceRefused, match=r"made for another checkpoint than other\.gguf"):
        open_start(replace(wanted, source=other, adapter=str(tmp_path / "a")), tmp_path, Silent())
