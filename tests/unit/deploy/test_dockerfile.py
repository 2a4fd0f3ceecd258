"""What an image's build needs, without an engine to build it: a file left out is otherwise found out by a user."""

from pathlib import Path

import pytest

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
