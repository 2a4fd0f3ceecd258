"""A gateway's part of a model folder outlives the folder, and is never an altered one."""

import shutil

import pytest

from ostraka_gateway.served_model import ServedModel
from ostraka_shared.errors import ModelDamaged
from ostraka_shared.front_files import NAMES, open_front, read_front, write_front


def test_what_was_kept_serves_without_the_folder(fake_model, tmp_path):
    kept = tmp_path / "kept"
    write_front(read_front(fake_model), kept)
    shutil.rmtree(fake_model.path)
    found = open_front(kept, fake_model.path)
    assert (found.path, found.spec, found.fingerprint) == (fake_model.path, fake_model.spec, fake_model.fingerprint)
    assert ServedModel(found).name == fake_model.spec.name


@pytest.mark.parametrize("name", NAMES)
def test_an_altered_file_is_not_kept(fake_model, name):
    with (fake_model.path / name).open("ab") as file:
        file.write(b" ")
    with pytest.raises(ModelDamaged, match=f"{name} was altered"):
        read_front(fake_model)


def test_a_file_that_is_gone_is_named(fake_model):
    fake_model.tokenizer.unlink()
    with pytest.raises(ModelDamaged, match=str(fake_model.tokenizer)):
        read_front(fake_model)


def test_an_altered_tokenizer_is_not_served(fake_model):
    with fake_model.tokenizer.open("ab") as file:
        file.write(b" ")
    with pytest.raises(ModelDamaged, match="was altered"):
        ServedModel(fake_model)
