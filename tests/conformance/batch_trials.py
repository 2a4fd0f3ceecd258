"""jevbench's trials of whether an answer depends on what else was asked in its request."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

JEVBENCH = Path(sys.executable).with_name("jevbench")


def check_batch_trials(url: str, folder: Path, suite: str) -> dict[str, int]:
    """How many trials of each relation were made. Fails where one did, or was left out."""
    report = folder / "jevbench.json"
    command = [JEVBENCH, "eval", f"--url={url}/v1/systemone", "--model=jev-latest", f"--suite={suite}"]
    options = ["--dimensions=BAT", "--no-cache", "--concurrency=4", f"--out={report}"]
    run = subprocess.run([*command, *options], capture_output=True, text=True, check=False, cwd=folder)
    assert run.returncode == 0, run.stdout + run.stderr
    checks: dict[str, Any] = json.loads(report.read_text(encoding="utf-8"))["scores"]["checks"]
    assert len(checks) >= 5
    for name, check in checks.items():
        assert (check["score"], check["coverage"]) == (1.0, 1.0), (name, check)
    return {name: check["n"] for name, check in checks.items()}
