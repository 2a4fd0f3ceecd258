import io
import shutil
import signal
import sys
from pathlib import Path

import pytest

from ostraka.__main__ import main
from ostraka_shared.model_folder import ModelFolder, PromptContract, open_folder, write_sums
from ostraka_worker import kernels
from ostraka_worker.build import builder
from ostraka_worker.build.progress import Bars, Lines, for_stderr
from tests.unit.worker.build.forms import FORMS, random_tensors, write_folder
from tests.unit.worker.build.made_adapters import write

pytestmark = pytest.mark.usefixtures("quick_check")


def call(*words: str | Path) -> int:
    return main(["model", *map(str, words)])


def test_build_list_verify(tiny_gguf: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cache = ("--cache-dir", tmp_path)
    assert call("list", *cache) == 0
    assert "no models yet" in capsys.readouterr().err
    assert call("build", tiny_gguf, "--precision", "int8", "--answers", "a", "b", *cache) == 0
    built = tmp_path / "models" / "tiny-int8"
    assert capsys.readouterr().out == f"{built}\n"
    assert open_folder(built).spec.contract.yes == "b"
    (tmp_path / "models" / ".x.building-1").mkdir()
    (tmp_path / "models" / "broken").mkdir()
    assert call("list", *cache) == 0
    broken, tiny = capsys.readouterr().out.splitlines()
    assert "no model folder" in broken
    assert tiny.split()[:2] == ["tiny-int8", "int8"]
    assert call("verify", built) == 0
    said = capsys.readouterr().out
    assert "is whole: 4 files" in said
    assert said.endswith("; served here by model.onnx\n")  # heads of 16, which no kernel takes


def test_a_graph_that_was_left_in_the_folder_by_another_model_is_not_served(
    tiny_folders: dict[str, ModelFolder],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Nobody has hashed it, and the fingerprint would be that of the others."""
    monkeypatch.setattr(kernels, "usable_kinds", lambda: ("vnni",))
    folder = Path(shutil.copytree(tiny_folders["fp32"].path, tmp_path / "model"))
    shutil.copy(folder / "model.onnx", folder / "model.vnni.onnx")
    assert call("verify", folder) == 0
    assert capsys.readouterr().out.endswith("; served here by model.onnx\n")


@pytest.mark.parametrize("damaged", ["model.onnx", "model.avx512.onnx"])
def test_what_would_be_served_is_what_is_verified_and_what_is_fallen_back_to(
    tiny_folders: dict[str, ModelFolder],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    damaged: str,
) -> None:
    monkeypatch.setattr(kernels, "usable_kinds", lambda: ("avx512",))
    folder = Path(shutil.copytree(tiny_folders["fp32"].path, tmp_path / "model"))
    (folder / "SHA256SUMS").unlink()
    shutil.copy(folder / "model.onnx", folder / "model.avx512.onnx")
    write_sums(folder)
    assert call("verify", folder) == 0
    assert capsys.readouterr().out.endswith("; served here by model.avx512.onnx\n")
    (folder / damaged).write_bytes(b"no graph")
    write_sums(folder)
    assert call("verify", folder) == 1
    assert f"{folder / damaged} cannot be loaded" in capsys.readouterr().err


def test_a_wrong_flag_of_a_subcommand_is_one_line_with_the_nearest_one(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        call("build", "x.gguf", "--precison=int8")
    said = "unrecognized arguments: --precison=int8; did you mean --precision?"
    assert capsys.readouterr().err == f"ostraka model: {said} (see ostraka model --help)\n"


def test_name_and_output(tiny_gguf: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert call("build", tiny_gguf, "--name", "My Model!", "--output", tmp_path / "here") == 0
    spec = open_folder(tmp_path / "here").spec
    assert (spec.name, spec.source["file"]) == ("my-model", "tiny.gguf")
    with pytest.raises(SystemExit):
        call("build", tiny_gguf, "--name", "../..")
    assert "no letter or digit" in capsys.readouterr().err


def test_a_file_or_an_adapter_without_a_name_is_one_line(
    tiny_gguf: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = shutil.copy(tiny_gguf, tmp_path / "!!!.gguf")
    adapter = write(tmp_path / "a", tiny_gguf, name="???")
    for words, text in (([source], "!!!"), ([tiny_gguf, "--adapter", adapter.path], "???")):
        assert call("build", *words, "--cache-dir", tmp_path) == 1
        said = f"ostraka: '{text}' has no letter or digit to name a folder with: give it a --name\n"
        assert capsys.readouterr().err == said


def test_build_with_an_adapter(tiny_gguf: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    adapter = write(tmp_path / "a", tiny_gguf, name="My Own")
    assert call("build", tiny_gguf, "--adapter", adapter.path, "--cache-dir", tmp_path) == 0
    built = tmp_path / "models" / "my-own-fp32"
    assert open_folder(built).spec.source["adapter"] == "a"
    capsys.readouterr()
    assert call("build", tiny_gguf, "--adapter", adapter.path, "--answers", "a", "b") == 1
    assert "--form and --answers need a SOURCE, and no --adapter" in capsys.readouterr().err


def test_build_from_a_folder_that_is_asked_for_yes_or_no(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    form = FORMS["qwen3"]
    source = write_folder(tmp_path / "Tiny.Qwen3-0.1B", form, random_tensors(form), shards=2)
    assert call("build", source, "--form", "yes-no", "--cache-dir", tmp_path) == 0
    folder = open_folder(tmp_path / "models" / "tiny.qwen3-0.1b-fp32")
    assert capsys.readouterr().out == f"{folder.path}\n"
    assert folder.spec.contract == PromptContract("", " No", " Yes")
    assert (folder.spec.architecture, folder.spec.source["folder"]) == ("qwen3", "Tiny.Qwen3-0.1B")
    assert folder.spec.answer_token_ids == (form.pieces.index("ĠNo"), form.pieces.index("ĠYes"))
    assert call("verify", folder.path) == 0
    (source / "tokenizer_config.json").write_text("{}")  # the same model, of another source
    assert call("build", source, "--form", "yes-no", "--cache-dir", tmp_path) == 0
    assert open_folder(folder.path).spec.source != folder.spec.source


def test_the_cache_dir_variable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tiny_gguf: Path) -> None:
    monkeypatch.setenv("OSTRAKA_CACHE_DIR", str(tmp_path))
    assert call("build", tiny_gguf) == 0
    assert [path.name for path in (tmp_path / "models").iterdir()] == ["tiny-fp32"]


def test_an_altered_file_fails_verification(
    tiny_gguf: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "model"
    call("build", tiny_gguf, "--output", folder)
    weights = folder / "model.onnx.data"
    damaged = bytearray(weights.read_bytes())
    damaged[len(damaged) // 2] ^= 1
    weights.write_bytes(damaged)
    capsys.readouterr()
    assert call("verify", folder) == 1
    assert capsys.readouterr().err.splitlines()[-1].endswith("was altered since it was built: build the model again")


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["build", "absent.gguf"], "ostraka: there is no file or folder absent.gguf\n"),
        (["build", "/dev/zero"], "ostraka: there is no file or folder /dev/zero\n"),
        (
            ["build", "--answers", "a", "b"],
            "ostraka: --form and --answers need a SOURCE, and no --adapter: how other models are asked is fixed\n",
        ),
        (
            ["build", "--form", "yes-no"],
            "ostraka: --form and --answers need a SOURCE, and no --adapter: how other models are asked is fixed\n",
        ),
        (["verify", "absent"], "ostraka: no model folder at absent: build one with `ostraka model build`\n"),
    ],
)
def test_a_failure_is_one_line_and_exit_1(
    words: list[str], says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert call(*words) == 1
    assert capsys.readouterr().err == says


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_what_ends_a_build_lets_it_put_away_what_is_half_made(
    tiny_gguf: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: signal.Signals
) -> None:
    monkeypatch.setattr(builder, "check_graph", lambda *_: signal.raise_signal(number))
    with pytest.raises(SystemExit) as ended:
        call("build", tiny_gguf, "--output", tmp_path / "model")
    assert (ended.value.code, list(tmp_path.iterdir())) == (128 + number, [])
    assert signal.getsignal(number) == signal.SIG_DFL


def test_a_place_that_is_taken_is_refused_before_anything_is_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "notes").write_text("mine")
    assert call("build", "absent.gguf", "--name", "x", "--output", tmp_path) == 1
    assert "exists and is not a model folder" in capsys.readouterr().err


@pytest.mark.parametrize("place", [".", "mounted"])
def test_a_place_that_nothing_can_be_moved_to_is_refused_before_anything_is_built(
    tiny_gguf: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], place: str
) -> None:
    """The system would say so at the end."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(Path, "is_mount", lambda path: path.name == "mounted")
    assert call("build", tiny_gguf, "--output", place) == 1
    assert f"{place} is no place that a finished folder can be moved to" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_bars_on_a_terminal_and_lines_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = io.StringIO()
    monkeypatch.setattr(terminal, "isatty", lambda: True)
    monkeypatch.setattr(sys, "stderr", terminal)
    progress = for_stderr()
    assert isinstance(progress, Bars)
    progress.begin("hashing", 10, "B")
    progress.advance(10)
    progress.begin("built it")
    progress.end()
    assert "ostraka: hashing: 100%" in terminal.getvalue()
    assert terminal.getvalue().endswith("ostraka: built it\n")
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    assert type(for_stderr()) is Lines
