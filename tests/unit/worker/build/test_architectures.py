"""Every form of checkpoint through the whole engine, against a float64 forward pass that shares nothing with it."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest

from ostraka_worker.build.catalog import PRECISIONS
from ostraka_worker.build.checkpoint import read_checkpoint
from ostraka_worker.build.graph import write_graph
from ostraka_worker.build.kernel_graphs import ALONE
from ostraka_worker.build.progress import Silent
from ostraka_worker.build.reference import reference_logits
from ostraka_worker.engine import Line
from ostraka_worker.kernels import graph_for, usable_kinds
from ostraka_worker.onnx_engine import OnnxEngine
from tests.unit.worker.build.forms import FORMS, Form, random_tensors, write_gguf
from tests.unit.worker.build.plain_forward import logits

ANSWERS = (7, 19)
RECORDED = Path(__file__).with_name("transformers_logits.json")


class Built:
    """One form in each precision, with what is expected of it."""

    def __init__(self, name: str, folder: Path) -> None:
        self.form: Form = FORMS[name]
        self.tensors = random_tensors(self.form)
        self.checkpoint = read_checkpoint(write_gguf(folder / "x.gguf", self.form, self.tensors), Silent())
        self.prompts = _prompts(self.form)
        self.expected = np.stack([logits(self.form, self.tensors, ids)[list(ANSWERS)] for ids in self.prompts])
        self.engines = {}
        for precision in PRECISIONS:
            place = folder / precision
            place.mkdir()
            write_graph(self.checkpoint, ANSWERS, precision, place, Silent())
            self.engines[precision] = OnnxEngine(place / "model.onnx")
            # Where this machine has them, our own kernels too; the smallest heads have none.
            for kind in usable_kinds():
                if (graph := graph_for(place / "model.onnx", kind)).exists():
                    self.engines[f"{precision}-{kind}"] = OnnxEngine(graph)
                    assert self.engines[f"{precision}-{kind}"].version.endswith(f"+{kind}")


def _prompts(form: Form) -> list[list[int]]:
    random = np.random.default_rng(3)
    return [random.integers(0, len(form.pieces), length).tolist() for length in (1, 2, 5, 17, 33, 60, 90)]


def line(ids: list[int]) -> Line:
    return Line(np.array(ids, np.uint32))


@pytest.fixture(scope="module", params=FORMS)
def built(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Built:
    return Built(request.param, tmp_path_factory.mktemp(request.param))


@pytest.mark.parametrize("name", FORMS)
def test_the_plain_forward_pass_agrees_with_transformers(name: str) -> None:
    recorded = json.loads(RECORDED.read_text())[name]
    form, ids = FORMS[name], recorded["ids"]
    ours = logits(form, random_tensors(form), ids)[: len(recorded["logits"])]
    np.testing.assert_allclose(ours, recorded["logits"], atol=2e-5)


def test_the_reference_agrees(built: Built) -> None:
    ids = [np.array(prompt, np.uint32) for prompt in built.prompts]
    ours = reference_logits(built.checkpoint, ids, ANSWERS, Silent())
    np.testing.assert_allclose(ours, built.expected, rtol=1e-4, atol=1e-4)


def test_the_fp32_graph_agrees(built: Built) -> None:
    for name in ("fp32", "fp32-avx512"):
        if engine := built.engines.get(name):
            ours = engine.run([line(ids) for ids in built.prompts])
            np.testing.assert_allclose(ours, built.expected, rtol=1e-4, atol=1e-4)


def test_the_int8_graph_agrees_as_far_as_8_bits_go(built: Built) -> None:
    """Measured: 0.04 to 0.10 of the logits' spread, by form. A bias, a norm or a pair that is mixed up costs all of it."""
    spread = np.std(built.expected)
    for name in ("int8", "int8-avx512", "int8-vnni", "int8-vnni-bf16", "int8-amx"):
        if engine := built.engines.get(name):
            ours = engine.run([line(ids) for ids in built.prompts])
            assert np.sqrt(np.mean((ours - built.expected) ** 2)) < 0.15 * spread, name


def test_there_is_a_variant_for_each_kernel_that_takes_such_heads(built: Built, tmp_path: Path) -> None:
    write_graph(built.checkpoint, ANSWERS, "int8", tmp_path, Silent())
    kinds = ("amx", "vnni", "vnni-bf16", "avx512") if built.form.head_dims % 32 == 0 else ()
    names = ["model.onnx", "model.onnx.data", *(f"model.{kind}.onnx" for kind in kinds)]
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(names)


def operators(graph: Path) -> set[str]:
    return {node.op_type for node in onnx.load(graph, load_external_data=False).graph.node}


@pytest.mark.parametrize(
    ("precision", "kind", "attention", "product", "most"),
    [
        ("fp32", "avx512", "LineAttention", "MatMul", 1e-5),
        ("int8", "vnni", "LineAttention", "MatMulIntegerToFloat", 0.15),
        ("int8", "vnni-bf16", "LineAttentionBf16Dots", "MatMulIntegerToFloat", 0.15),
        ("int8", "amx", "LineAttentionBf16", "MatMulIntegerToFloat", 0.15),
    ],
)
def test_layers_too_odd_for_our_products_keep_the_runtimes(
    tmp_path: Path, precision: str, kind: str, attention: str, product: str, most: float
) -> None:
    """The variant then has our attention alone, or is not there. `hidden` is no multiple of 32."""
    for hidden in (80, 96):
        form = replace(FORMS["minicpm5"], hidden=hidden)
        checkpoint = read_checkpoint(write_gguf(tmp_path / "x.gguf", form, random_tensors(form)), Silent())
        folder = tmp_path / str(hidden)
        folder.mkdir()
        write_graph(checkpoint, ANSWERS, precision, folder, Silent())
        graphs = [folder / "model.onnx", folder / f"model.{kind}.onnx"]
        assert graphs[1].exists() == (hidden == 96 or kind in ALONE)
        if not graphs[1].exists():
            continue
        ours = operators(graphs[1])
        assert attention in ours
        is_own = any(name.startswith(f"{precision.capitalize()}FeedForward") for name in ours)
        assert (is_own, product in ours) == (hidden == 96, hidden == 80)
        if kind in usable_kinds():
            prompts = _prompts(form)
            logits_of = [OnnxEngine(graph).run([line(ids) for ids in prompts]) for graph in graphs]
            assert np.abs(logits_of[0] - logits_of[1]).max() < most * logits_of[0].std()


def test_alone_together_cold_and_warm_are_the_same_bits(built: Built) -> None:
    for engine in built.engines.values():
        check_bits(built, engine)


def check_bits(built: Built, engine: OnnxEngine) -> None:
    together = engine.run([line(ids) for ids in built.prompts])
    for ids, expected in zip(built.prompts, together, strict=True):
        np.testing.assert_array_equal(engine.run([line(ids)])[0], expected)
        if len(ids) > 2:
            np.testing.assert_array_equal(resumed(engine, ids, len(ids) // 2), expected)
    longest = built.prompts[-1]
    state, rest = longest[:60], longest[60:]
    tree = [Line(np.array(state, np.uint32), is_answered=False), Line(np.array(rest, np.uint32), parent=0)]
    np.testing.assert_array_equal(engine.run(tree)[0], together[-1])


def resumed(engine: OnnxEngine, ids: list[int], kept: int) -> np.ndarray:
    memory = engine.memory(kept)
    engine.run([Line(np.array(ids[:kept], np.uint32), keep=memory, keep_tokens=kept)])
    return engine.run([Line(np.array(ids[kept:], np.uint32), memory, kept)])[0]
