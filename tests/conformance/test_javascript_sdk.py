"""TypeSafe's JavaScript package against the server, where there is a node and a registry to get it from."""

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.cluster import Cluster

PACKAGE = "@typesafe-ai/sdk@0.6.0"
SCRIPT = Path(__file__).with_name("js") / "ask.mjs"
NODE_MAJOR_MIN = 20
INSTALL_S = 60


def install(folder: Path) -> None:
    """Into `folder`, without a lock file. Skips, and says why, where that cannot be."""
    node, npm = shutil.which("node"), shutil.which("npm")
    if not node or not npm:
        pytest.skip("no node and npm here")
    version = subprocess.run([node, "--version"], capture_output=True, text=True, check=True).stdout.strip()
    if int(version.lstrip("v").partition(".")[0]) < NODE_MAJOR_MIN:
        pytest.skip(f"node {version} is older than {NODE_MAJOR_MIN}")
    command = [npm, "install", "--no-package-lock", "--no-audit", "--no-fund", "--ignore-scripts", PACKAGE]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder, timeout=INSTALL_S)
    except subprocess.TimeoutExpired:
        pytest.skip(f"npm did not get {PACKAGE} within {INSTALL_S} s")
    if done.returncode:
        pytest.skip(f"npm could not get {PACKAGE}: {done.stderr.strip()[-200:]}")


def test_its_answers_errors_and_models(served: Cluster, tmp_path: Path) -> None:
    install(tmp_path)
    shutil.copy(SCRIPT, tmp_path)
    environment = os.environ | {"TYPESAFE_BASE_URL": served.url, "TYPESAFE_API_KEY": "any"}
    run = subprocess.run(
        ["node", SCRIPT.name], capture_output=True, text=True, check=False, cwd=tmp_path, env=environment, timeout=60
    )
    assert run.returncode == 0, run.stderr
    found = json.loads(run.stdout)
    assert 0 <= found["answers"]["late"]["noul"] <= 1
    assert found["answers"]["team"]["choice"] in ("billing", "shipping")
    assert found["answers"]["anger"]["legend"] == {"0": "calm", "1": "annoyed", "2": "furious"}
    assert found["usage"]["input_tokens"] > 0
    assert found["requestId"].startswith("req_")
    assert found["models"] == ["fake-model", "jev-latest"]
    assert found["elevenLevels"] == ["UnprocessableEntityError", 422, True]
    assert found["unknownModel"] == ["BadRequestError", 400, True]
