"""One cluster for all tests of a file, which starts in 3 s: what they need is a server, not a new one."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from ostraka_shared.model_folder import ModelFolder
from tests.cluster import Cluster, running
from tests.fake_model import make_fake_model


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_fake_model(tmp_path_factory.mktemp("edge") / "model").path


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("shared")


@pytest.fixture
def release(place: Path) -> Path:
    """The file that ends every stall of `fake_model`, once a test touches it."""
    path = place / "release"
    path.unlink(missing_ok=True)
    return path


@pytest.fixture(scope="module")
def fake_model(place: Path) -> ModelFolder:
    return make_fake_model(place / "model", stall_until=str(place / "release"))


@pytest.fixture(scope="module")
def cluster(fake_model: ModelFolder, place: Path) -> Iterator[Cluster]:
    """Two workers with the fake engine."""
    with running(fake_model.path, "--workers=2", f"--run-dir={place / 'run'}") as found:
        yield found
