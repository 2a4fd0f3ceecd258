"""The ONNX engine on a tiny model: what it is fed, and that an answer knows nothing of its batch mates."""

import os
from pathlib import Path

import numpy as np
import pytest

from ostraka_shared.errors import ModelDamaged
from ostraka_shared.model_folder import ModelFolder
from ostraka_worker.build.catalog import PRECISIONS
from ostraka_worker.build.checkpoint import read_checkpoint
from ostraka_worker.build.progress import Silent
from ostraka_worker.build.reference import reference_logits
from ostraka_worker.engine import Line, Memory
from ostraka_worker.onnx_engine import OnnxEngine
from ostraka_worker.packing import pack
from tests.unit.worker.build.tiny import pieces


def prompt(ids: list[int], shared: int = 0) -> Line:
    array = np.array(ids, np.uint32)
    return Line(array)


def random_prompts(count: int, longest: int = 60) -> list[Line]:
    random = np.random.default_rng(3)
    lengths = random.integers(1, longest, count)
    return [prompt(random.integers(0, len(pieces()), length).tolist(), int(length) // 3) for length in lengths]


def test_telemetry_is_off() -> None:
    assert os.environ["ORT_DISABLE_TELEMETRY"] == "1"


def test_packed_inputs() -> None:
    packed = pack([prompt([5, 6, 7], 2), prompt([8])])
    used = {name: packed.inputs[name].tolist() for name in ("token_ids", "pad", "unpad", "last", "ends", "longest")}
    assert used == {
        "token_ids": [5, 6, 7, 8],
        "pad": [[0, 1, 2], [3, 0, 0]],
        "unpad": [0, 1, 2, 3],
        "last": [2, 3],
        "ends": [2, 0],
        "longest": 3,
    }
    assert not packed.inputs["resumes"]
    assert packed.inputs["positions"].tolist() == [[0], [1], [2], [0]]


def test_packed_inputs_of_a_tree_over_a_memory() -> None:
    memory = Memory((np.zeros((9, 1), np.float32),))
    root = Line(np.array([5, 6], np.uint32), memory, 3, is_answered=False)
    packed = pack([root, Line(np.array([7], np.uint32), parent=0), Line(np.array([8], np.uint32), memory, 2)])
    used = ("token_ids", "pad", "unpad", "last", "positions", "keys")
    assert {name: packed.inputs[name].tolist() for name in used} == {
        "token_ids": [5, 6, 7, 8],
        "pad": [[0, 1], [2, 0], [3, 0]],
        "unpad": [0, 1, 2, 4],
        "last": [2, 3],
        "positions": [[3], [4], [5], [2]],
        "keys": [[0, 1, 2, 3, 4, 0], [0, 1, 2, 3, 4, 5], [0, 1, 6, 0, 0, 0]],
    }
    mask = packed.inputs["mask"][:, 0] == 0
    assert mask[0].tolist() == [[True] * 4 + [False] * 2, [True] * 5 + [False]]
    assert mask[1, 0].tolist() == [True] * 6
    assert mask[2, 0].tolist() == [True] * 3 + [False] * 3
    assert packed.past == ((memory, 3),)


@pytest.mark.parametrize("precision", PRECISIONS)
def test_answers_do_not_depend_on_batch_mates(tiny_folders: dict[str, ModelFolder], precision: str) -> None:
    engine = OnnxEngine(tiny_folders[precision].graph)
    prompts = random_prompts(24)
    alone = np.concatenate([engine.run([one]) for one in prompts])
    random = np.random.default_rng(11)
    for size in (2, 3, 7, 24):
        order = random.permutation(len(prompts))
        for start in range(0, len(prompts), size):
            chosen = order[start : start + size]
            np.testing.assert_array_equal(engine.run([prompts[i] for i in chosen]), alone[chosen])


@pytest.mark.parametrize(("precision", "most"), [("fp32", 1e-4), ("int8", 0.5)])
def test_the_graph_agrees_with_the_reference(
    tiny_folders: dict[str, ModelFolder], tiny_gguf: Path, precision: str, most: float
) -> None:
    folder, prompts = tiny_folders[precision], random_prompts(16)
    ids = [one.tokens for one in prompts]
    checkpoint = read_checkpoint(tiny_gguf, Silent())
    expected = reference_logits(checkpoint, ids, folder.spec.answer_token_ids, Silent())
    assert np.abs(OnnxEngine(folder.graph).run(prompts) - expected).max() < most


def test_one_token_many_times_on_two_threads(tiny_folders: dict[str, ModelFolder]) -> None:
    engine = OnnxEngine(tiny_folders["int8"].graph, threads=2)
    assert np.isfinite(engine.run([prompt([1] * 500)])).all()
    assert engine.version.startswith("onnxruntime 1.")


@pytest.mark.parametrize("damage", ["absent", "garbage", "no weights"])
def test_a_graph_that_cannot_be_loaded_is_one_clear_line(
    tiny_folders: dict[str, ModelFolder], tmp_path: Path, damage: str
) -> None:
    graph = tmp_path / "model.onnx"
    if damage == "garbage":
        graph.write_bytes(b"garbage")
    if damage == "no weights":
        graph.write_bytes(tiny_folders["fp32"].graph.read_bytes())
    with pytest.raises(ModelDamaged, match="cannot be loaded") as damaged:
        OnnxEngine(graph)
    assert "\n" not in str(damaged.value)
