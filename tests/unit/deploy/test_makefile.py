"""The Makefile's own logic, with a Python that installs nothing."""

import fcntl
import os
import shutil
import subprocess
from pathlib import Path

import psutil
import pytest

from tests.waiting import wait_until

ROOT = Path(__file__).parents[3]
PYTHON = """#!/bin/sh
mkdir -p .venv/bin
printf '#!/bin/sh\necho "$@" >> installed' > .venv/bin/pip
printf '#!/bin/sh\n' > .venv/bin/ostraka
chmod +x .venv/bin/*
"""


@pytest.mark.skipif(not (shutil.which("make") and shutil.which("flock")), reason="no make, or no flock")
def test_who_serves_where_another_installs_waits_and_installs_no_more(tmp_path: Path) -> None:
    for name in ("Makefile", "pyproject.toml", "constraints.txt"):
        shutil.copy(ROOT / name, tmp_path)
    python = tmp_path / "python"
    python.write_text(PYTHON)
    python.chmod(0o755)
    command = ["make", "serve", f"PYTHON={python}", "VENV=.venv"]
    # Of a `make` that these tests are run by, what it was told is not for this one.
    env = {name: value for name, value in os.environ.items() if name not in ("MAKEFLAGS", "MFLAGS", "MAKELEVEL")}
    with (tmp_path / "Makefile").open() as makefile:
        fcntl.flock(makefile, fcntl.LOCK_EX)
        both = [subprocess.Popen(command, cwd=tmp_path, env=env) for _ in range(2)]
        for each in both:
            made = psutil.Process(each.pid)
            wait_until(lambda made=made: [c for c in made.children() if c.name() == "flock"], what="it waits")
        assert not (tmp_path / ".venv").exists()
    assert [each.wait(timeout=30) for each in both] == [0, 0]
    assert len((tmp_path / "installed").read_text().splitlines()) == 2, "pip itself, and the package"
