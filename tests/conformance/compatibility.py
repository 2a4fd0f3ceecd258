"""jevcompat's report on a server, read and judged."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

JEVCOMPAT = Path(sys.executable).with_name("jevcompat")


def run_jevcompat(url: str, folder: Path, *options: str) -> tuple[int, dict[str, Any]]:
    """Its exit code and its report."""
    report = folder / "report.json"
    command = [JEVCOMPAT, "test", url, f"--json={report}", *options]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert report.exists(), run.stdout + run.stderr
    return run.returncode, json.loads(report.read_text(encoding="utf-8"))


def failed(report: dict[str, Any]) -> list[str]:
    return [result["id"] for result in report["results"] if result["status"] not in ("pass", "skip")]


def check_compatibility(url: str, folder: Path, *options: str, must: int, should: int) -> None:
    """All requirements of either level are tested, and met."""
    code, report = run_jevcompat(url, folder, *options)
    assert failed(report) == []
    assert (code, _counts(report, "MUST"), _counts(report, "SHOULD")) == (0, (must, must), (should, should))


def _counts(report: dict[str, Any], level: str) -> tuple[int, int]:
    """(passed, tested)"""
    return report["summary"][level]["passed"], report["summary"][level]["tested"]
