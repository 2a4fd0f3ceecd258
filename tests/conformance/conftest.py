from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster import Cluster, running
from tests.fake_model import make_fake_model


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """One worker with the fake engine, for every test of a module: none of them may break it. Touching
    `served.release` ends every stall."""
    folder: Path = tmp_path_factory.mktemp("served")
    model = make_fake_model(folder / "model", stall_until=str(folder / "release"))
    with running(model.path, "--workers=1", f"--run-dir={folder / 'run'}") as cluster:
        yield cluster
