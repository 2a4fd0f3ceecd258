import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from ostraka_shared.model_folder import ModelFolder
from tests.cluster import Cluster, running
from tests.fake_model import make_fake_model

for name in [name for name in os.environ if name.startswith("OSTRAKA_")]:
    del os.environ[name]  # the developer's own settings are not the tests'

# Under nohup, or in a shell's background, these are ignored, and so by every child: the tests send both.
signal.signal(signal.SIGHUP, signal.SIG_DFL)
signal.signal(signal.SIGINT, signal.default_int_handler)

# How long an example takes says something of the machine, nothing of the code: the first ones of a fresh checkout wait
# for tables that are made then. Other examples are tried each time, so that many short runs try as many as one long one:
# of `make check`, each 5 take 2 s. `make test` takes the time (--hypothesis-profile=thorough).
untimed = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("ostraka", untimed, max_examples=10)
settings.register_profile("thorough", untimed, max_examples=75)
settings.load_profile("ostraka")


CLUSTERS = ("integration", "faults", "conformance", "e2e")
PARTS = "parts"
"""Below `integration`: real processes, and no cluster."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Two lanes for `make test`: those that start clusters, which must have no other cluster beside them, and the rest."""
    for item in items:
        folders = item.path.relative_to(Path(__file__).parent).parts
        lane = "clusters" if folders[0] in CLUSTERS and PARTS not in folders else str(item.path)
        item.add_marker(pytest.mark.xdist_group(lane))


@pytest.fixture
def release(tmp_path: Path) -> Path:
    """The file that ends every stall of `fake_model`, once it is touched."""
    return tmp_path / "release"


@pytest.fixture
def fake_model(tmp_path: Path, release: Path) -> ModelFolder:
    return make_fake_model(tmp_path / "model", stall_until=str(release))


@pytest.fixture
def cluster(fake_model: ModelFolder, tmp_path: Path) -> Iterator[Cluster]:
    """Two workers with the fake engine; the sockets' folder is `tmp_path / "run"`."""
    with running(fake_model.path, "--workers=2", f"--run-dir={tmp_path / 'run'}") as found:
        yield found
