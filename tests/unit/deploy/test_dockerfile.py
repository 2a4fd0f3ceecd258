"""What an image's build needs, without an engine to build it: a file left out is otherwise found out by a user."""

import re
from pathlib import Path

import pytest

from ostraka.serve_config import StopConfig
from ostraka_worker.build.catalog import DEFAULT_PRECISION

ROOT = Path(__file__).parents[3]
COPIED = [
    source
    for line in (ROOT / "deploy" / "Dockerfile").read_text().splitlines()
    if line.startswith("COPY ") and "--from=" not in line
    for source in line.split()[1:-1]
]
HELD_BACK = (ROOT / ".dockerignore").read_text().splitlines()


@pytest.mark.parametrize("source", COPIED)
def test_what_the_dockerfile_copies_is_sent_to_the_engine(source: str) -> None:
    assert (ROOT / source).exists()
    assert f"!{source}" in HELD_BACK


def test_what_the_build_reads_is_copied() -> None:
    assert {"pyproject.toml", "hatch_build.py", "README.md", "LICENSE"} < set(COPIED)


def test_the_image_s_model_has_the_default_precision_unless_compose_is_told_another() -> None:
    dockerfile = (ROOT / "deploy" / "Dockerfile").read_text()
    assert f"ARG PRECISION={DEFAULT_PRECISION}\n" in dockerfile
    assert '--precision "$PRECISION"' in dockerfile
    assert f"PRECISION: ${{OSTRAKA_PRECISION:-{DEFAULT_PRECISION}}}\n" in (ROOT / "deploy" / "compose.yaml").read_text()


@pytest.mark.parametrize(
    ("file", "name"), [("compose.yaml", "stop_grace_period"), ("README.md", "terminationGracePeriodSeconds")]
)
def test_who_stops_the_server_waits_for_longer_than_a_stop_takes(file: str, name: str) -> None:
    found = re.search(
        rf"^ *{name}: (?:\$\{{OSTRAKA_STOP_GRACE:-)?(\d+)", (ROOT / "deploy" / file).read_text(), re.MULTILINE
    )
    assert found
    assert int(found[1]) >= StopConfig.not_ready_s + StopConfig.grace_s + 10
