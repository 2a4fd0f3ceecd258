"""One cluster for all tests of a file, which starts in 3 s: what they need is a server, not a new one."""

import gzip
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from ostraka_shared.model_folder import ModelFolder
from tests.cluster import Cluster, running
from tests.fake_model import make_fake_model
from tests.integration.labelled import examples
from tests.integration.request_files import body


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


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """36 good examples in two files, one of them gzip, with a broken line and one that the model refuses."""
    lines = [json.dumps(one) for one in examples()]
    lines.insert(5, "{broken")
    lines.insert(9, json.dumps({"state": 3, "question": "a number?", "type": "noul", "label": True, "source": "odd"}))
    (tmp_path / "one.jsonl").write_text("\n".join(lines[:20]))
    (tmp_path / "two.jsonl.gz").write_bytes(gzip.compress("\n".join(lines[20:]).encode()))
    return tmp_path


@pytest.fixture
def requests(tmp_path: Path) -> Path:
    """Twenty good requests with a refused one, a broken one and a blank line among them."""
    lines = [body(f"state {i}" * (i + 1)) for i in range(20)]
    lines[3] = body(3)
    lines[11] = b'{"state": '
    lines.insert(7, b"  ")
    path = tmp_path / "requests.jsonl"
    path.write_bytes(b"\n".join(lines) + b"\n")
    return path
