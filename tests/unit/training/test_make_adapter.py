from pathlib import Path

import numpy as np
import pytest

from ostraka_worker.build.adapter import adapt
from ostraka_worker.build.adapter_file import read_adapter, write_adapter
from ostraka_worker.build.checkpoint import read_checkpoint
from ostraka_worker.build.progress import Silent
from tests.unit.worker.build.tiny import FORM, write_tiny
from training.make_adapter import changes_of, describe, rounding_errors

RANK = 4


def state(layers=2):
    random = np.random.default_rng(1)
    query, key = FORM.heads * FORM.head_dims, FORM.kv_heads * FORM.head_dims
    sizes = {
        "attn_q": (query, FORM.hidden), "attn_k": (key, FORM.hidden), "attn_v": (key, FORM.hidden),
        "attn_output": (FORM.hidden, query), "ffn_gate": (FORM.wide, FORM.hidden), "ffn_up": (FORM.wide, FORM.hidden),
        "ffn_down": (FORM.hidden, FORM.wide),
    }  # fmt: skip
    held = {"p.out_norm": random.normal(size=FORM.hidden), "head": random.normal(size=(2, FORM.hidden))}
    for i in range(layers):
        held |= {f"p.{i}_{norm}": random.normal(size=FORM.hidden) for norm in ("attn_norm", "ffn_norm")}
        for name, (outputs, inputs) in sizes.items():
            held[f"p.{i}_{name}_A"] = random.normal(size=(RANK, inputs))
            held[f"p.{i}_{name}_B"] = random.normal(size=(outputs, RANK))
    return {name: tensor.astype(np.float32) for name, tensor in held.items()}


def test_a_state_becomes_an_adapter_of_calibrated_margins(tmp_path: Path) -> None:
    held = state()
    changes = changes_of(held, temperature=2.0)
    record = describe("x", "0" * 64, changes, {})
    assert (record.layers, record.rank, record.no, record.yes) == (2, RANK, "0", "1")
    write_adapter(tmp_path / "a", record, changes)
    stored = read_adapter(tmp_path / "a")
    errors = rounding_errors(changes, stored.changes())
    assert len(errors) == 14
    assert 0 < max(errors.values()) < 0.02
    base = read_checkpoint(write_tiny(tmp_path / "m.gguf"), Silent())
    merged = adapt(base, stored, (5, 6))
    np.testing.assert_array_equal(merged.head_rows((5, 6)), held["head"] / 2)
    exact = base.layer(1, "attn_k") + held["p.1_attn_k_B"] @ held["p.1_attn_k_A"]
    np.testing.assert_allclose(merged.layer(1, "attn_k"), exact, atol=0.15)


def test_what_an_adapter_has_no_place_for_is_refused() -> None:
    with pytest.raises(ValueError, match=r"p\.emb is no part of an adapter"):
        changes_of(state() | {"p.emb": np.ones(3, np.float32)}, 1.0)
    uneven = state() | {"p.0_attn_q_A": np.ones((5, FORM.hidden), np.float32)}
    with pytest.raises(ValueError, match="ranks"):
        describe("x", "0", changes_of(uneven, 1.0), {})
