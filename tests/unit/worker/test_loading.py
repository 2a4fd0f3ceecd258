import os

import pytest

from ostraka_shared import model_folder
from ostraka_shared.errors import ModelDamaged
from ostraka_shared.model_folder import verified
from ostraka_worker import loading
from ostraka_worker.loading import load_verified
from tests.fake_model import make_fake_model


def test_what_was_loaded_is_what_was_verified(fake_model):
    loaded = load_verified(fake_model, threads=1)
    loaded.check_files()
    assert loaded.proof() == load_verified(fake_model, threads=1).proof() != b""


def test_an_altered_file_is_found_by_its_hash(fake_model):
    fake_model.tokenizer.write_bytes(fake_model.tokenizer.read_bytes() + b" ")
    with pytest.raises(ModelDamaged, match=r"tokenizer\.json was altered"):
        load_verified(fake_model, threads=1)


def test_what_was_hashed_as_it_is_now_is_not_hashed_again_and_what_was_altered_since_is(fake_model, monkeypatch):
    folder, hashed = verified(fake_model), []
    monkeypatch.setattr(model_folder, "verify_folder", lambda folder: hashed.append(folder.path))
    load_verified(folder, threads=1)
    assert hashed == []
    load_verified(fake_model, threads=1)
    before = folder.tokenizer.stat()
    folder.tokenizer.write_bytes(folder.tokenizer.read_bytes())
    os.utime(folder.tokenizer, ns=(before.st_atime_ns, before.st_mtime_ns))
    load_verified(folder, threads=1)
    assert hashed == [folder.path] * 2


def test_a_file_written_to_after_it_was_hashed_is_found_at_once_and_later(fake_model, monkeypatch):
    """Its time is put back, as a careful hand would: the kernel's own note of the change stays."""

    def touch(folder, threads):
        before = folder.tokenizer.stat()
        folder.tokenizer.write_bytes(folder.tokenizer.read_bytes())
        os.utime(folder.tokenizer, ns=(before.st_atime_ns, before.st_mtime_ns))
        return engine(folder, threads)

    loaded = load_verified(fake_model, threads=1)
    engine = loading.load_engine
    monkeypatch.setattr(loading, "load_engine", touch)
    with pytest.raises(ModelDamaged, match="after they were verified"):
        load_verified(fake_model, threads=1)
    with pytest.raises(ModelDamaged, match="after they were verified"):
        loaded.check_files()


def test_a_file_that_is_gone_is_named(fake_model):
    loaded = load_verified(fake_model, threads=1)
    fake_model.tokenizer.unlink()
    with pytest.raises(ModelDamaged, match=str(fake_model.tokenizer)):
        loaded.check_files()


def test_another_model_gives_another_proof(fake_model, tmp_path):
    class Other:
        def run(self, lines):
            return load_verified(fake_model, threads=1).engine.run(lines) + 1

    one = load_verified(make_fake_model(tmp_path / "other"), threads=1)
    other = loading.Loaded(one.folder, Other(), one.files)
    assert one.proof() != other.proof()
