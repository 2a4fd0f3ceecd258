"""The kernels and a real compiler; and what serves on a CPU that has not what they use."""

import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from ostraka_shared.model_folder import ModelFolder
from ostraka_worker.build.builder import Form, build_source
from ostraka_worker.build.progress import Silent
from ostraka_worker.kernels import KINDS, build, usable_kinds
from tests.unit.worker.build.tiny import write_tiny

IS_TARGET = (sys.platform, platform.machine()) == ("linux", "x86_64")
CANNOT_TRAP = 77
needs_compiler = pytest.mark.skipif(not IS_TARGET or not shutil.which("cc"), reason="no C compiler, or not x86-64")


@needs_compiler
def test_they_compile_without_a_warning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build, "FLAGS", [*build.FLAGS, "-Werror"])
    assert build.compile_kernels(tmp_path / "kernels.so") == ""
    assert [path.name for path in tmp_path.iterdir()] == ["kernels.so"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> ModelFolder:
    """Of a form that has a variant for each kernel."""
    place = tmp_path_factory.mktemp("variants")
    source = write_tiny(place / "tiny.gguf", layers=1, head_dims=32)
    return build_source(source, place / "model", "tiny", "int8", Form("0", "1"), Silent())


@needs_compiler
@pytest.mark.parametrize(
    ("flags", "lacks"),
    [
        ([], {"amx"}),
        (["-DNO_BF16"], {"amx", "vnni-bf16"}),
        (["-DNO_VNNI"], {"amx", "vnni-bf16", "vnni"}),
        (["-DNO_AVX512"], set(KINDS)),
    ],
)
def test_an_older_cpu_is_served_by_what_it_can_run(
    folder: ModelFolder, tmp_path: Path, flags: list[str], lacks: set[str]
) -> None:
    library = tmp_path / "older_cpu.so"
    source = Path(__file__).with_name("older_cpu.c")
    subprocess.run(["cc", "-shared", "-fPIC", "-Werror", *flags, "-o", library, source], check=True)
    command = [sys.executable, "-m", "ostraka", "model", "verify", str(folder.path)]
    environment = os.environ | {"LD_PRELOAD": str(library)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)
    if done.returncode == CANNOT_TRAP:
        pytest.skip("this CPU, or what virtualizes it, cannot trap CPUID")
    best = next((f"model.{kind}.onnx" for kind in usable_kinds() if kind not in lacks), "model.onnx")
    assert (done.returncode, done.stdout.endswith(f"; served here by {best}\n")) == (0, True), done.stderr
