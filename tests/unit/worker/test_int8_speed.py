from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from onnx import TensorProto, helper
from structlog.testing import capture_logs

from ostraka_shared.model_folder import ModelFolder
from ostraka_worker import int8_speed, kernels, loading
from ostraka_worker.build.builder import Form, build_source
from ostraka_worker.build.progress import Silent
from ostraka_worker.int8_speed import COLUMNS, FP32_GEMM, INNER, INT8_GEMM, ROWS, TRIES, wanted_gain, warn_if_slow
from ostraka_worker.loading import load_verified
from ostraka_worker.onnx_engine import open_session
from tests.unit.worker.build.tiny import write_tiny


def gemm(operation, a, b, c):
    shape = helper.make_tensor("shape", TensorProto.INT64, [2], [INNER, COLUMNS])
    weights = helper.make_node("ConstantOfShape", ["shape"], ["b"], value=helper.make_tensor("value", b, [1], [1]))
    product = helper.make_node(operation, ["a", "b"], ["c"])
    inputs = [helper.make_tensor_value_info("a", a, [ROWS, INNER])]
    outputs = [helper.make_tensor_value_info("c", c, [ROWS, COLUMNS])]
    graph = helper.make_graph([weights, product], "gemm", inputs, outputs, [shape])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


def test_the_graphs_are_what_they_are_said_to_be():
    floats = TensorProto.FLOAT
    assert gemm("MatMul", floats, floats, floats).SerializeToString(deterministic=True) == FP32_GEMM
    integers = (TensorProto.UINT8, TensorProto.INT8, TensorProto.INT32)
    assert gemm("MatMulInteger", *integers).SerializeToString(deterministic=True) == INT8_GEMM


def test_both_compute_the_same_product():
    for graph, kind in ((FP32_GEMM, np.float32), (INT8_GEMM, np.uint8)):
        (product,) = open_session(graph).run(None, {"a": np.full((ROWS, INNER), 2, kind)})
        assert product.shape == (ROWS, COLUMNS)
        assert (product == 2 * INNER).all()


def test_a_gain_is_measured():
    assert 0.05 < int8_speed.measure_gain() < 100


@pytest.mark.parametrize(
    ("flags", "wanted"),
    [("fpu avx2 avx512_vnni amx_int8", 4.5), ("avx2 avx_vnni", 2.0), ("avx2 avx512_vnni", 2.0), ("asimd i8mm", 0.0)],
)
def test_what_is_wanted_follows_from_the_cpu(flags, wanted):
    assert wanted_gain(f"model name : x\nflags : {flags}\n") == wanted


def run_with(monkeypatch, wanted, *gains):
    left = list(gains)
    monkeypatch.setattr(int8_speed, "wanted_gain", lambda _: wanted)
    monkeypatch.setattr(int8_speed, "measure_gain", lambda: left.pop(0))
    with capture_logs() as events:
        warn_if_slow("onnxruntime 9")
    return events, left


def test_a_slow_runtime_is_named_after_it_had_its_chances(monkeypatch):
    (event,), left = run_with(monkeypatch, 4.5, *[3.1, 3.25, 3.0], 7.0)
    assert (event["event"], event["runtime"], event["times_fp32"], event["wanted"]) == (
        "int8_is_slow",
        "onnxruntime 9",
        3.2,
        4.5,
    )
    assert left == [7.0]
    assert TRIES == 3


def test_a_disturbed_measurement_is_no_slow_runtime(monkeypatch):
    assert run_with(monkeypatch, 4.5, 3.7, 7.2) == ([], [])


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> ModelFolder:
    """Of a form that our kernels multiply too."""
    place = tmp_path_factory.mktemp("tiled")
    source = write_tiny(place / "tiny.gguf", layers=1, head_dims=32)
    return build_source(source, place / "model", "tiny", "int8", Form("0", "1"), Silent())


@pytest.mark.parametrize(
    ("precision", "kinds", "is_checked"),
    [
        ("int8", (), True),
        ("int8", ("avx512",), True),  # which attends, and leaves the products to the runtime
        ("int8", ("vnni", "avx512"), False),
        ("int8", ("amx", "vnni", "avx512"), False),
        ("fp32", (), False),
    ],
)
def test_the_runtimes_products_are_checked_where_they_are_used(monkeypatch, folder, precision, kinds, is_checked):
    monkeypatch.setattr(kernels, "usable_kinds", lambda: kinds)
    # Whatever this machine can compute: what is chosen for it is the matter, not the choice's answers.
    monkeypatch.setattr(loading, "load_engine", lambda *_: SimpleNamespace(version="1.0"))
    monkeypatch.setattr(int8_speed, "wanted_gain", lambda _: 1000.0)
    monkeypatch.setattr(int8_speed, "measure_gain", lambda: 1.0)
    monkeypatch.setattr(loading, "are_missing", lambda: False)
    with capture_logs() as events:
        load_verified(replace(folder, spec=replace(folder.spec, precision=precision)), threads=1)
    assert [event["event"] for event in events] == ["int8_is_slow"] * is_checked


@pytest.mark.parametrize(
    ("flags", "library", "events"),
    [("avx2 avx512f", "none", ["kernels_missing"]), ("avx2", "none", []), ("avx2 avx512f", "cpu_info", [])],
)
def test_kernels_that_nobody_compiled_are_missed_where_they_would_serve(
    monkeypatch, folder, tmp_path, flags, library, events
):
    (tmp_path / "cpu_info").write_text(f"flags : {flags}\n")
    monkeypatch.setattr(kernels, "CPU_INFO", tmp_path / "cpu_info")
    monkeypatch.setattr(kernels, "LIBRARY", tmp_path / library)
    monkeypatch.setattr(loading, "load_engine", lambda *_: SimpleNamespace(version="1.0"))
    with capture_logs() as found:
        load_verified(replace(folder, spec=replace(folder.spec, precision="fp32")), threads=1)
    assert [event["event"] for event in found] == events
