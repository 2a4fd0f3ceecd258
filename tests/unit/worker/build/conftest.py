from pathlib import Path

import pytest

from ostraka_shared.model_folder import ModelFolder
from ostraka_worker.build import check
from ostraka_worker.build.builder import Form, build_source
from ostraka_worker.build.catalog import PRECISIONS
from ostraka_worker.build.progress import Silent
from tests.unit.worker.build.tiny import write_tiny


class Steps(Silent):
    """Remembers what a build said it was doing."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    def begin(self, step: str, total: int = 0, unit: str = "") -> None:  # noqa: ARG002
        self.seen.append(step)


@pytest.fixture(scope="session")
def tiny_gguf(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny(tmp_path_factory.mktemp("gguf") / "tiny.gguf")


@pytest.fixture(scope="session")
def tiny_folders(tiny_gguf: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, ModelFolder]:
    models = tmp_path_factory.mktemp("models")
    return {p: build_source(tiny_gguf, models / p, "tiny", p, Form("0", "1"), Silent()) for p in PRECISIONS}


@pytest.fixture
def quick_check(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two short states, in a build whose graph is not what the test is about: the others take half its time."""
    monkeypatch.setattr(check, "STATES", check.STATES[:2])


@pytest.fixture
def steps() -> Steps:
    return Steps()
