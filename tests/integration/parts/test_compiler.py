"""The kernels and a real compiler."""

import platform
import shutil
import sys
from pathlib import Path

import pytest

from ostraka_worker.kernels import build

IS_TARGET = (sys.platform, platform.machine()) == ("linux", "x86_64")


@pytest.mark.skipif(not IS_TARGET or not shutil.which("cc"), reason="no C compiler, or not x86-64")
def test_they_compile_without_a_warning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build, "FLAGS", [*build.FLAGS, "-Werror"])
    assert build.compile_kernels(tmp_path / "kernels.so") == ""
    assert [path.name for path in tmp_path.iterdir()] == ["kernels.so"]
