"""The kernels alone, against attention written out in float64; and what happens without them."""

import platform
import shutil
import sys
from pathlib import Path

import numpy as np
import onnxruntime as ort
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import TensorProto, helper
from structlog.testing import capture_logs

from ostraka_worker import kernels
from ostraka_worker.build.kernel_graphs import DOMAIN, FIELDS
from ostraka_worker.kernels import LIBRARY, build, usable_kinds

HEADS, KV_HEADS, DIMS = 6, 2, 32
OPERATORS = {"avx512": "LineAttention", "vnni-bf16": "LineAttentionBf16Dots", "amx": "LineAttentionBf16"}
# In float the sums' own roundings; in bfloat16 those of the odds, to 8 bits.
TOLERANCES = {"avx512": 2e-5, "vnni-bf16": 4e-2, "amx": 4e-2}
VARIANTS = {"model.onnx", "model.amx.onnx", "model.avx512.onnx"}
needs_kernels = pytest.mark.skipif(
    not usable_kinds(), reason="no kernels here (python -m ostraka_worker.kernels.build)"
)
Lines = list[tuple[int, int, int, int, int]]


def make_session(kind: str) -> ort.InferenceSession:
    kept = TensorProto.UINT16 if kind != "avx512" else TensorProto.FLOAT
    names = {"query": TensorProto.FLOAT, "key": kept, "value": kept, "past_key": kept, "past_value": kept}
    names["lines"] = TensorProto.INT32
    inputs = [helper.make_tensor_value_info(name, type_, [None, None]) for name, type_ in names.items()]
    node = helper.make_node(OPERATORS[kind], list(names), ["out"], domain=DOMAIN, heads=HEADS, kv_heads=KV_HEADS)
    outputs = [helper.make_tensor_value_info("out", TensorProto.FLOAT, [None, None])]
    opsets = [helper.make_opsetid("", 23), helper.make_opsetid(DOMAIN, 1)]
    model = helper.make_model(helper.make_graph([node], "one", inputs, outputs), opset_imports=opsets, ir_version=11)
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    options.register_custom_ops_library(str(LIBRARY))
    return ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])


@pytest.fixture(scope="module", params=[each for each in usable_kinds() if each in OPERATORS] or ["avx512"])
def kind(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(scope="module")
def session(kind: str) -> ort.InferenceSession:
    return make_session(kind)


class Call:
    """Random rows for some lines. Keys and values are rounded as the kernel wants them."""

    def __init__(self, lines: Lines, past: int, kind: str) -> None:
        random = np.random.default_rng(len(lines) + past)
        rows, width = sum(line[1] for line in lines), KV_HEADS * DIMS
        self.lines = lines
        self.query = random.normal(0, 2, (rows, HEADS * DIMS)).astype(np.float32)
        made = [random.normal(0, 1, (count, width)).astype(np.float32) for count in (rows, rows, past, past)]
        self.key, self.value, self.past_key, self.past_value = (
            truncate(each) if kind != "avx512" else each for each in made
        )
        self.is_rounded = kind != "avx512"

    def inputs(self) -> dict[str, np.ndarray]:
        kept = {"key": self.key, "value": self.value, "past_key": self.past_key, "past_value": self.past_value}
        if self.is_rounded:
            kept = {name: (each.view(np.uint32) >> 16).astype(np.uint16) for name, each in kept.items()}
        lines = np.array(self.lines, np.int32).reshape(-1, FIELDS)
        return {"query": self.query, "lines": lines, **kept}

    def expected(self) -> np.ndarray:
        out = np.zeros(self.query.shape)
        seen: list[tuple[np.ndarray, np.ndarray]] = []
        for row, rows, first, past, parent in self.lines:
            before = seen[parent] if parent >= 0 else (self.past_key[first:][:past], self.past_value[first:][:past])
            keys, values = (
                np.vstack([before[0], self.key[row:][:rows]]),
                np.vstack([before[1], self.value[row:][:rows]]),
            )
            seen.append((keys, values))
            for offset in range(rows):
                out[row + offset] = self._attend(row + offset, keys, values, len(keys) - rows + offset + 1)
        return out

    def _attend(self, row: int, keys: np.ndarray, values: np.ndarray, count: int) -> np.ndarray:
        parts = []
        for head in range(HEADS):
            place = slice(head // (HEADS // KV_HEADS) * DIMS, (head // (HEADS // KV_HEADS) + 1) * DIMS)
            query = self.query[row, head * DIMS : (head + 1) * DIMS].astype(np.float64)
            scores = keys[:count, place].astype(np.float64) @ query / DIMS**0.5
            odds = np.exp(scores - scores.max())
            parts.append(odds / odds.sum() @ values[:count, place])
        return np.concatenate(parts)


def truncate(rows: np.ndarray) -> np.ndarray:
    """To what bfloat16 holds."""
    return (rows.view(np.uint32) & np.uint32(0xFFFF0000)).view(np.float32)


@st.composite
def calls(draw: st.DrawFn) -> tuple[Lines, int]:
    """Lines after nothing, after one of two memories, or after another line; blocks of 128 keys begin anywhere in them."""
    pasts = [draw(st.sampled_from([0, 1, 127, 128, 129, 300])) for _ in range(2)]
    lines: Lines = []
    row = 0
    for index in range(draw(st.integers(1, 6))):
        rows = draw(st.one_of(st.integers(1, 12), st.sampled_from([31, 32, 33, 130])))
        if index and draw(st.booleans()):
            lines.append((row, rows, 0, 0, draw(st.integers(0, index - 1))))
        else:
            which = draw(st.integers(0, 1))
            lines.append((row, rows, sum(pasts[:which]), draw(st.integers(0, pasts[which])), -1))
        row += rows
    return lines, sum(pasts)


@needs_kernels
@given(call=calls())
def test_each_row_sees_its_own_prompt_and_nothing_else(
    session: ort.InferenceSession, kind: str, call: tuple[Lines, int]
) -> None:
    made = Call(*call, kind)
    (out,) = session.run(None, made.inputs())
    assert np.abs(out - made.expected()).max() < TOLERANCES[kind]


@needs_kernels
@given(past=st.integers(1, 400), rows=st.integers(1, 40))
def test_the_same_bits_at_once_or_after_a_past(session: ort.InferenceSession, kind: str, past: int, rows: int) -> None:
    whole = Call([(0, past + rows, 0, 0, -1)], 0, kind)
    (expected,) = session.run(None, whole.inputs())
    resumed = whole.inputs()
    for name in ("key", "value"):
        resumed[f"past_{name}"], resumed[name] = resumed[name][:past], resumed[name][past:]
    resumed["query"] = resumed["query"][past:]
    resumed["lines"] = np.array([[0, rows, 0, past, -1]], np.int32)
    (out,) = session.run(None, resumed)
    assert out.tobytes() == expected[past:].tobytes()


@needs_kernels
@pytest.mark.parametrize(
    "lines",
    [
        [(0, 4, 0, 0, -1)],
        [(0, 9, 0, 0, -1)],
        [(1, 8, 0, 0, -1)],
        [(0, 8, 3, 3, -1)],
        [(0, 8, -1, 2, -1)],
        [(0, 8, 0, 0, 0)],
        [(0, 8, 0, 0, -1), (8, 0, 0, 0, -1)],
    ],
)
def test_lines_that_reach_outside_are_refused(session: ort.InferenceSession, kind: str, lines: Lines) -> None:
    inputs = Call([(0, 8, 0, 0, -1)], 5, kind).inputs() | {"lines": np.array(lines, np.int32)}
    with pytest.raises(Exception, match="the lines do not cover the rows"):
        session.run(None, inputs)


@needs_kernels
def test_shapes_that_do_not_fit_are_refused(session: ort.InferenceSession, kind: str) -> None:
    inputs = Call([(0, 8, 0, 0, -1)], 5, kind).inputs()
    with pytest.raises(Exception, match="shapes do not fit"):
        session.run(None, inputs | {"past_value": inputs["past_value"][:3]})


def test_without_the_library_the_runtimes_own_operators_serve(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "LIBRARY", tmp_path / "kernels.so")
    kernels.usable_kinds.cache_clear()
    try:
        assert kernels.best_graph(tmp_path / "model.onnx", VARIANTS).name == "model.onnx"
        (tmp_path / "kernels.so").write_bytes(b"no library")
        kernels.usable_kinds.cache_clear()
        assert kernels.best_graph(tmp_path / "model.onnx", VARIANTS).name == "model.onnx"
    finally:
        kernels.usable_kinds.cache_clear()


@needs_kernels
@pytest.mark.parametrize("share", [0.0, 0.0005, 0.002, 0.4, 0.9999])
def test_a_copy_of_the_library_that_was_cut_short_is_not_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, share: float
) -> None:
    """In this process: to load one would end it."""
    content = LIBRARY.read_bytes()
    (tmp_path / "kernels.so").write_bytes(content[: int(len(content) * share)])
    monkeypatch.setattr(kernels, "LIBRARY", tmp_path / "kernels.so")
    kernels.usable_kinds.cache_clear()
    try:
        assert kernels.usable_kinds() == ()
    finally:
        kernels.usable_kinds.cache_clear()


@needs_kernels
def test_a_library_of_other_sources_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kernels.usable_kinds.cache_clear()
    try:
        with capture_logs() as events:
            assert (
                kernels.best_graph(tmp_path / "model.onnx", VARIANTS - {"model.amx.onnx"}).name == "model.avx512.onnx"
            )
            monkeypatch.setattr(build, "hash_sources", lambda: "of the next version")
            kernels.usable_kinds.cache_clear()
            assert kernels.best_graph(tmp_path / "model.onnx", VARIANTS - {"model.amx.onnx"}).name == "model.onnx"
        assert [event["event"] for event in events] == ["kernels_of_other_sources"]
    finally:
        kernels.usable_kinds.cache_clear()


@pytest.mark.parametrize(
    ("usable", "there", "best"),
    [
        (("amx", "avx512"), ("amx", "avx512"), "model.amx.onnx"),
        (("avx512",), ("amx", "avx512"), "model.avx512.onnx"),
        (("amx", "avx512"), ("avx512",), "model.avx512.onnx"),
        (("amx", "avx512"), (), "model.onnx"),
        ((), ("amx", "avx512"), "model.onnx"),
        (("vnni-bf16", "vnni", "avx512"), ("avx512", "vnni", "vnni-bf16"), "model.vnni-bf16.onnx"),
        (("vnni", "avx512"), ("amx", "avx512", "vnni", "vnni-bf16"), "model.vnni.onnx"),
        (("vnni-bf16", "vnni", "avx512"), ("avx512", "amx"), "model.avx512.onnx"),
    ],
)
def test_the_best_variant_that_is_there_and_usable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, usable: tuple[str, ...], there: tuple[str, ...], best: str
) -> None:
    monkeypatch.setattr(kernels, "usable_kinds", lambda: usable)
    assert kernels.best_graph(tmp_path / "model.onnx", {f"model.{each}.onnx" for each in there}).name == best


def test_a_variant_that_does_not_belong_to_the_model_is_not_served(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "model.avx512.onnx").touch()
    monkeypatch.setattr(kernels, "usable_kinds", lambda: ("avx512",))
    assert kernels.best_graph(tmp_path / "model.onnx", {"model.onnx"}).name == "model.onnx"


def test_the_kind_that_does_more_in_one_instruction_is_tried_first() -> None:
    assert [*kernels.KINDS] == ["amx", "vnni-bf16", "vnni", "avx512"]


IS_TARGET = (sys.platform, platform.machine()) == ("linux", "x86_64")


@pytest.mark.skipif(not IS_TARGET, reason="not x86-64")
def test_a_compiler_that_fails_or_is_missing_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", "false")
    assert "false cannot compile the kernels" in build.compile_kernels(tmp_path / "kernels.so")
    (tmp_path / "silent").write_text("#!/bin/sh\necho >&2\nexit 1\n")
    (tmp_path / "silent").chmod(0o755)
    monkeypatch.setenv("CC", str(tmp_path / "silent"))
    assert "silent cannot compile the kernels (Command" in build.compile_kernels(tmp_path / "kernels.so")
    (tmp_path / "silent").unlink()
    monkeypatch.delenv("CC")
    monkeypatch.setattr(shutil, "which", lambda _: None)
    assert build.compile_kernels(tmp_path / "kernels.so") == "there is no C compiler"
    assert list(tmp_path.iterdir()) == []
