"""bfloat16: which value is the nearest, and where it is not said to be one."""

from pathlib import Path

import numpy as np
import onnx
import pytest

from ostraka_shared.errors import ModelDamaged
from ostraka_shared.model_folder import GRAPH_FILE, WEIGHTS_FILE
from ostraka_worker.build import builder, catalog, rounding
from ostraka_worker.build.bfloat16 import as_bf16, rounded, widened
from ostraka_worker.build.checkpoint import read_checkpoint
from ostraka_worker.build.decoder import EMBEDDING, in_pieces
from ostraka_worker.build.graph import write_graph
from ostraka_worker.build.kernel_graphs import DOMAIN
from ostraka_worker.build.progress import Silent
from ostraka_worker.build.stored_tensors import StoredTensor, StoredTensors
from ostraka_worker.engine import Line
from ostraka_worker.kernels import graph_for, usable_kinds
from ostraka_worker.onnx_engine import OnnxEngine
from tests.unit.worker.build.forms import FORMS, Form, Kind, random_tensors, write_folder, write_gguf

WIDE = Form("llama", "smollm", FORMS["smollm2"].specials, 1, heads=2, kv_heads=1, head_dims=32)
"""Of widths that our own layers take."""
IDS = (13, 14)


def test_the_nearest_is_taken_and_of_two_the_even_one() -> None:
    step = np.float32(2**-7)
    ulps = np.array([0, 0.25, 0.5, 0.75, 1, 1.5, 1.5 + 2**-10], np.float32)
    np.testing.assert_array_equal(rounded(1 + ulps * step), 1 + np.array([0, 0, 0, 1, 1, 2, 2], np.float32) * step)
    np.testing.assert_array_equal(rounded(-1 - ulps * step), -rounded(1 + ulps * step))
    largest = np.array([np.finfo(np.float32).max, 0, -0.0, 1e-40], np.float32)
    assert rounded(largest)[0] == np.inf
    assert as_bf16(rounded(largest)).tolist()[1:3] == [0, 0x8000]


def test_what_it_does_not_hold_is_refused() -> None:
    values = np.array([[1.5, -2], [0.1, 3]], np.float32)
    with pytest.raises(ValueError, match="does not hold"):
        as_bf16(values)
    held = as_bf16(rounded(values))
    np.testing.assert_array_equal(widened(held), rounded(values))


@pytest.mark.parametrize(("kind", "in_bf16"), [(Kind.F32, False), (Kind.F16, False), (Kind.BF16, True)])
def test_a_checkpoint_says_whether_its_weights_are(tmp_path: Path, kind: Kind, in_bf16: bool) -> None:
    tensors = random_tensors(WIDE)
    assert read_checkpoint(write_gguf(tmp_path / "x.gguf", WIDE, tensors, kind), Silent()).in_bf16 is in_bf16
    assert read_checkpoint(write_folder(tmp_path / "m", WIDE, tensors, kind.name), Silent()).in_bf16 is in_bf16


@pytest.mark.parametrize(
    ("matrices", "in_bf16", "is_quantised"),
    [("BF16 BF16", True, False), ("BF16 Q8_0", False, True), ("Q4_K Q8_0", False, True), ("F16 Q8_0", False, False)],
)
def test_weights_are_quantised_where_none_of_a_linear_layer_lies_in_float(
    matrices: str, in_bf16: bool, is_quantised: bool
) -> None:
    """Whatever gains and the embedding lie in."""

    def stored(kind: str, *shape: int) -> StoredTensor:
        return StoredTensor(Path(), 0, shape, 0, np.ravel, kind == "BF16", kind.startswith("Q"))

    tensors = {EMBEDDING: stored("F16", 64, 32), "blk.0.attn_norm.weight": stored("F32", 32)}
    tensors |= {f"blk.{at}.attn_q.weight": stored(kind, 32, 32) for at, kind in enumerate(matrices.split())}
    read = StoredTensors(tensors, lambda _, tensor: tensor)
    assert (read.in_bf16, read.is_quantised) == (in_bf16, is_quantised)


def test_the_linear_layers_of_a_quantised_file_become_bfloat16(tmp_path: Path) -> None:
    plain = read_checkpoint(write_gguf(tmp_path / "x.gguf", WIDE, random_tensors(WIDE), Kind.Q8_0), Silent())
    ours = rounding.in_bf16(plain)
    assert (plain.is_quantised, plain.in_bf16, ours.in_bf16) == (True, False, True)
    assert list(ours.tensors) == list(plain.tensors)
    changed = {name for name in plain.tensors if not np.array_equal(ours.tensors[name], plain.tensors[name])}
    assert changed == {name for name, tensor in plain.tensors.items() if tensor.ndim > 1} - {EMBEDDING}
    for name in changed:
        np.testing.assert_array_equal(ours.tensors[name], rounded(plain.tensors[name]))
    pieces = [np.concatenate(list(in_pieces(ours.tensors, name))) for name in (EMBEDDING, "blk.1.ffn_up.weight")]
    np.testing.assert_array_equal(pieces[0], plain.tensors[EMBEDDING])
    np.testing.assert_array_equal(pieces[1], ours.layer(1, "ffn_up"))


@pytest.mark.parametrize("source", ["in float", "heads too narrow for our layers"])
def test_nothing_is_rounded_where_that_would_only_cost(tmp_path: Path, source: str) -> None:
    form, kind = (WIDE, Kind.F16) if source == "in float" else (FORMS["smollm2"], Kind.Q8_0)
    plain = read_checkpoint(write_gguf(tmp_path / "x.gguf", form, random_tensors(form), kind), Silent())
    assert rounding.in_bf16(plain) is plain


@pytest.mark.usefixtures("quick_check")
@pytest.mark.parametrize("precision", catalog.PRECISIONS)
def test_a_build_rounds_quantised_weights_for_fp32_alone(tmp_path: Path, precision: str) -> None:
    path = write_gguf(tmp_path / "x.gguf", WIDE, random_tensors(WIDE), Kind.Q8_0)
    folder = builder.build_source(path, tmp_path / "model", "tiny", precision, builder.Form("0", "1"), Silent())
    plain = read_checkpoint(path, Silent())
    held = rounding.in_bf16(plain) if precision == "fp32" else plain
    write_graph(held, IDS, precision, tmp_path, Silent())
    assert (folder.path / WEIGHTS_FILE).read_bytes() == (tmp_path / WEIGHTS_FILE).read_bytes()


OWN = ("panels", "halves")
needs_kernels = pytest.mark.skipif("avx512" not in usable_kinds(), reason="no such instructions here, or no kernels")


@needs_kernels
def test_the_same_weights_answer_with_the_same_bits_in_either_form(tmp_path: Path) -> None:
    """And lie in half the bytes."""
    prompts = [np.arange(1, 1 + count, dtype=np.uint32) for count in (1, 9, 14, 15, 40)]
    answers, kinds, sizes = [], [], []
    for dtype in ("F32", "BF16"):
        folder = tmp_path / dtype
        checkpoint = read_checkpoint(write_folder(folder, WIDE, random_tensors(WIDE), dtype), Silent())
        write_graph(checkpoint, IDS, "fp32", folder, Silent())
        graph = graph_for(folder / GRAPH_FILE, "avx512")
        model = onnx.load(graph, load_external_data=False)
        kinds.append({node.op_type for node in model.graph.node if node.domain == DOMAIN})
        sizes.append(sum(len(external(tensor)) for tensor in model.graph.initializer if tensor.name.endswith(OWN)))
        engine = OnnxEngine(graph)
        alone = np.concatenate([engine.run([Line(ids)]) for ids in prompts])
        assert engine.run([Line(ids) for ids in prompts]).tobytes() == alone.tobytes()
        answers.append(alone)
    assert kinds[0] ^ kinds[1] == {"Fp32Heads", "Fp32FeedForward", "HalvesHeads", "HalvesFeedForward"}
    assert answers[0].tobytes() == answers[1].tobytes()
    assert sizes[0] == 2 * sizes[1] > 0


@needs_kernels
def test_a_folder_whose_weights_lie_in_another_order_is_refused_and_not_misread(tmp_path: Path) -> None:
    """What its operators were called was theirs alone."""
    checkpoint = read_checkpoint(write_folder(tmp_path, WIDE, random_tensors(WIDE), "BF16"), Silent())
    write_graph(checkpoint, IDS, "fp32", tmp_path, Silent())
    graph = graph_for(tmp_path / GRAPH_FILE, "avx512")
    model = onnx.load(graph, load_external_data=False)
    for node in model.graph.node:
        node.op_type = node.op_type.replace("Halves", "Bf16")
    graph.write_bytes(model.SerializeToString())
    with pytest.raises(ModelDamaged, match="build the model again"):
        OnnxEngine(graph)


def external(tensor: onnx.TensorProto) -> range:
    return range(next(int(entry.value) for entry in tensor.external_data if entry.key == "length"))
