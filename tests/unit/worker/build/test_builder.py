import json
import os
import shutil
import threading
from fcntl import LOCK_EX, flock
from pathlib import Path

import numpy as np
import pytest

from ostraka_shared.errors import CheckFailed, ConfigError, SourceRefused
from ostraka_shared.model_folder import ModelFolder, PromptContract, open_folder, verify_folder
from ostraka_worker.build import builder, catalog, check
from ostraka_worker.build.builder import Form, build_source
from ostraka_worker.build.checkpoint import read_checkpoint
from ostraka_worker.build.decoder import Checkpoint
from ostraka_worker.build.progress import Silent
from ostraka_worker.engine import Line
from ostraka_worker.onnx_engine import OnnxEngine
from tests.unit.worker.build.conftest import Steps

quickly = pytest.mark.usefixtures("quick_check")


def build(source: Path, target: Path, steps: Silent, precision: str = "fp32") -> ModelFolder:
    return build_source(source, target, "tiny", precision, Form("0", "1"), steps)


def entries(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.parametrize("precision", catalog.PRECISIONS)
def test_a_folder_is_whole_and_says_what_it_is(tiny_folders: dict[str, ModelFolder], precision: str) -> None:
    folder = tiny_folders[precision]
    verify_folder(folder)
    spec = folder.spec
    assert (spec.name, spec.architecture, spec.precision, spec.context_tokens) == ("tiny", "llama", precision, 512)
    assert spec.contract.bos == "<|im_start|>"
    assert set(folder.hashes) == {"model.json", "model.onnx", "model.onnx.data", "tokenizer.json"}
    measured = json.loads((folder.path / "check.json").read_text())
    assert measured["prompts"] >= 32
    assert all(measured[name] <= bound for name, bound in spec.check.items())
    assert measured["batch_dp"] == 0


@quickly
def test_the_same_source_gives_the_same_fingerprint(
    tiny_gguf: Path, tmp_path: Path, tiny_folders: dict[str, ModelFolder], steps: Steps
) -> None:
    assert build(tiny_gguf, tmp_path / "again", steps).fingerprint == tiny_folders["fp32"].fingerprint


@quickly
def test_a_second_build_does_nothing_and_says_so(tiny_gguf: Path, tmp_path: Path, steps: Steps) -> None:
    target = tmp_path / "model"
    build(tiny_gguf, target, Silent())
    before = target.stat().st_ino
    build(tiny_gguf, target, steps)
    assert target.stat().st_ino == before
    assert steps.seen[-1] == f"{target} is already built"
    assert len(steps.seen) == 2


@quickly
@pytest.mark.parametrize("change", ["precision", "answers", "damage"])
def test_what_differs_or_is_damaged_is_built_again(tiny_gguf: Path, tmp_path: Path, change: str, steps: Steps) -> None:
    target = tmp_path / "model"
    build(tiny_gguf, target, Silent())
    if change == "damage":
        (target / "model.onnx.data").unlink()
    form = Form("a", "b") if change == "answers" else Form("0", "1")
    precision = "int8" if change == "precision" else "fp32"
    folder = build_source(tiny_gguf, target, "tiny", precision, form, steps)
    assert steps.seen[-1] == f"built {target}"
    assert folder.spec.precision == precision
    assert folder.spec.contract == PromptContract("<|im_start|>", *form)
    verify_folder(folder)
    assert entries(tmp_path) == ["model"]


def test_a_folder_that_is_not_a_model_is_left_alone(tiny_gguf: Path, tmp_path: Path, steps: Steps) -> None:
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "letter.txt").write_text("dear")
    with pytest.raises(ConfigError, match="not a model folder"):
        build(tiny_gguf, tmp_path / "home", steps)
    assert entries(tmp_path / "home") == ["letter.txt"]


@quickly
def test_a_model_of_another_name_is_left_alone(tiny_gguf: Path, tmp_path: Path, steps: Steps) -> None:
    before = build(tiny_gguf, tmp_path / "mine", Silent()).fingerprint
    with pytest.raises(ConfigError, match="holds another model, tiny"):
        build_source(tiny_gguf, tmp_path / "mine", "other", "fp32", Form("0", "1"), steps)
    assert open_folder(tmp_path / "mine").fingerprint == before


@quickly
def test_an_empty_folder_is_filled(tiny_gguf: Path, tmp_path: Path, steps: Steps) -> None:
    (tmp_path / "model").mkdir()
    verify_folder(build(tiny_gguf, tmp_path / "model", steps))
    assert entries(tmp_path) == ["model"]


@quickly
def test_two_builders_take_turns(tiny_gguf: Path, tmp_path: Path, steps: Steps) -> None:
    other = os.open(tmp_path, os.O_RDONLY)
    waiting = threading.Event()

    class Watch(Steps):
        def begin(self, step: str, total: int = 0, unit: str = "") -> None:
            super().begin(step, total, unit)
            if step.startswith("waiting"):
                waiting.set()

    flock(other, LOCK_EX)
    thread = threading.Thread(target=build, args=(tiny_gguf, tmp_path / "model", Watch()))
    thread.start()
    assert waiting.wait(10)
    assert entries(tmp_path) == []
    os.close(other)
    thread.join(30)
    assert open_folder(tmp_path / "model").spec.name == "tiny"


@quickly
def test_what_a_killed_builder_left_is_removed(tiny_gguf: Path, tmp_path: Path, steps: Steps) -> None:
    (tmp_path / ".model.building-abc" / "made").mkdir(parents=True)
    build(tiny_gguf, tmp_path / "model", steps)
    assert entries(tmp_path) == ["model"]


def test_a_wrong_graph_is_refused_and_not_kept(
    tiny_gguf: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, steps: Steps
) -> None:
    right = builder.write_graph

    def write_wrongly(checkpoint: Checkpoint, *rest: object) -> None:
        tensors = dict(checkpoint.tensors)
        name = "blk.1.attn_k.weight"
        tensors[name] = np.roll(tensors[name], 1, axis=0)
        right(Checkpoint(checkpoint.config, checkpoint.vocabulary, tensors), *rest)

    monkeypatch.setattr(builder, "write_graph", write_wrongly)
    with pytest.raises(CheckFailed, match="largest_dp"):
        build(tiny_gguf, tmp_path / "model", steps)
    assert entries(tmp_path) == []


def test_a_figure_that_is_no_number_is_refused() -> None:
    measured = check.Measured(40, float("nan"), 0.0, 0.0)
    with pytest.raises(CheckFailed):
        check.refuse_above(measured, check.BOUNDS["fp32"])


def test_logits_as_far_apart_as_they_get_are_compared_without_overflow() -> None:
    logits = np.array([[0, -2000], [0, 2000]], np.float32)
    assert check.compare(logits, logits, -logits) == check.Measured(2, 0.0, 0.0, 1.0)


def test_an_answer_of_two_tokens_is_refused(tiny_gguf: Path, tmp_path: Path, steps: Steps) -> None:
    with pytest.raises(SourceRefused, match="must be one"):
        build_source(tiny_gguf, tmp_path / "model", "tiny", "fp32", Form("no", "1"), steps)
    assert entries(tmp_path) == []


@quickly
def test_a_published_model_can_be_replaced_under_a_running_engine(
    tiny_gguf: Path, tmp_path: Path, steps: Steps
) -> None:
    target = tmp_path / "model"
    engine = OnnxEngine(build(tiny_gguf, target, Silent()).graph)
    prompt = Line(np.array([1, 5, 9, 70], np.uint32))
    before = engine.run([prompt])
    build(tiny_gguf, target, steps, "int8")
    np.testing.assert_array_equal(engine.run([prompt]), before)
    shutil.rmtree(target)


def test_check_prompts_vary(tiny_gguf: Path) -> None:
    checkpoint = read_checkpoint(tiny_gguf, Silent())
    prompts = check.check_prompts(builder.build_tokenizer(checkpoint.vocabulary), "<|im_start|>", 512)
    lengths = {len(ids) for ids in prompts}
    assert len(prompts) >= 32
    assert len(lengths) > 20
    assert all(ids[0] == 1 for ids in prompts)
