import hashlib
import json
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ostraka_shared.errors import ModelDamaged, ModelMissing
from ostraka_shared.model_folder import (
    SPEC_FILE,
    SUMS_FILE,
    ModelSpec,
    PromptContract,
    open_folder,
    verify_folder,
    write_sums,
)

SPEC = ModelSpec(
    name="smol",
    architecture="llama",
    precision="int8",
    context_tokens=8192,
    contract=PromptContract("<|im_start|>", " no", " yes"),
    answer_token_ids=(788, 5_953),
    builder_version="0.1.0",
    source={"url": "θ", "sha256": "00"},
    check={"max_abs_diff": 0.25},
)


@pytest.fixture
def folder(tmp_path):
    path = tmp_path / "model"
    path.mkdir()
    (path / SPEC_FILE).write_text(SPEC.to_json(), encoding="utf-8")
    (path / "model.onnx").write_bytes(b"graph")
    (path / "model.onnx.data").write_bytes(b"w" * 3_000_000)
    (path / "tokenizer.json").write_text("{}")
    write_sums(path)
    return path


def test_what_was_written_is_read(folder):
    opened = open_folder(folder)
    assert opened.spec == SPEC
    assert opened.path == folder
    assert opened.graph.read_bytes() == b"graph"
    assert opened.tokenizer.read_text() == "{}"
    assert list(opened.hashes) == ["model.json", "model.onnx", "model.onnx.data", "tokenizer.json"]
    verify_folder(opened)


@pytest.mark.parametrize("name", ["model.json", "tokenizer.json", "model.onnx", "model.onnx.data"])
def test_what_is_read_must_be_listed(folder, name):
    sums = folder / SUMS_FILE
    sums.write_text("".join(line for line in sums.read_text().splitlines(True) if not line.endswith(f"  {name}\n")))
    with pytest.raises(ModelDamaged, match=f"does not list {name}: build"):
        open_folder(folder)


def test_the_fingerprint_is_the_hash_of_the_hashes(folder):
    assert open_folder(folder).fingerprint == hashlib.sha256((folder / SUMS_FILE).read_bytes()).hexdigest()


def test_the_same_files_elsewhere_have_the_same_fingerprint(folder, tmp_path):
    copy = shutil.copytree(folder, tmp_path / "copy")
    (copy / SUMS_FILE).unlink()
    write_sums(copy)
    assert open_folder(copy).fingerprint == open_folder(folder).fingerprint


@pytest.mark.parametrize("name", ["model.json", "model.onnx", "model.onnx.data", "tokenizer.json"])
def test_each_file_is_part_of_the_fingerprint(folder, name):
    before = open_folder(folder).fingerprint
    with (folder / name).open("ab") as file:
        file.write(b" ")
    write_sums(folder)
    assert open_folder(folder).fingerprint != before


def test_sha256sum_agrees(folder):
    done = subprocess.run(["sha256sum", "--check", "--strict", SUMS_FILE], cwd=folder, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("name", ["model.json", "model.onnx", "model.onnx.data", "tokenizer.json"])
def test_an_altered_file_is_found(folder, name):
    content = bytearray((folder / name).read_bytes())
    content[len(content) // 2] ^= 1
    opened = open_folder(folder)
    (folder / name).write_bytes(content)
    with pytest.raises(ModelDamaged, match=f"{name} was altered"):
        verify_folder(opened)


def test_progress_adds_up_to_the_bytes(folder):
    told = []
    verify_folder(open_folder(folder), told.append)
    assert sum(told) == sum((folder / name).stat().st_size for name in open_folder(folder).hashes)
    assert len(told) > 4  # the weights are read in pieces


def test_no_folder(tmp_path):
    with pytest.raises(ModelMissing, match="ostraka model build"):
        open_folder(tmp_path / "absent")


@pytest.mark.parametrize("name", [SUMS_FILE, "model.onnx", "model.onnx.data", "tokenizer.json"])
def test_a_missing_file_is_named(folder, name):
    (folder / name).unlink()
    with pytest.raises(ModelDamaged, match=name):
        open_folder(folder)


def damage_spec(folder, change):
    raw = json.loads(SPEC.to_json())
    change(raw)
    (folder / SPEC_FILE).write_text(json.dumps(raw))
    with pytest.raises(ModelDamaged, match="build the model again"):
        open_folder(folder)


@pytest.mark.parametrize("key", ["name", "architecture", "precision", "context_tokens", "contract", "answer_token_ids"])
def test_a_key_missing(folder, key):
    damage_spec(folder, lambda raw: raw.pop(key))


@pytest.mark.parametrize(
    "change",
    [
        {"more": 1},
        {"contract": None},
        {"contract": []},
        {"contract": "bos"},
        {"contract": {"bos": "a", "no": "b"}},
        {"contract": {"bos": "a", "no": "b", "yes": "c", "maybe": "d"}},
        {"answer_token_ids": [1]},
        {"answer_token_ids": [1, 2, 3]},
        {"answer_token_ids": 5},
        {"answer_token_ids": ["a", "b"]},
        {"answer_token_ids": None},
        {"answer_token_ids": ["1", "2"]},
        {"answer_token_ids": [1.0, 2]},
        {"answer_token_ids": [-1, 2]},
        {"answer_token_ids": [1, 2**32]},
        {"answer_token_ids": [True, False]},
        {"context_tokens": 0},
        {"context_tokens": -8192},
        {"context_tokens": "8192"},
        {"context_tokens": 8192.0},
        {"context_tokens": True},
        {"context_tokens": 10**4000},
        {"context_tokens": None},
        {"contract": {"bos": None, "no": "b", "yes": "c"}},
        {"contract": {"bos": "a", "no": 0, "yes": 1}},
        {"contract": {"bos": "\ud800", "no": "b", "yes": "c"}},
        {"name": 5},
        {"name": "\udfff"},
        {"architecture": ["llama"]},
        {"precision": None},
        {"builder_version": 3},
        {"engine": "tensorrt"},
        {"engine": []},
        {"source": []},
        {"source": {"sha256": 5}},
        {"check": "fine"},
        {"check": {"largest_dp": "small"}},
        {"check": {"largest_dp": True}},
        {"fake": [1]},
    ],
)
def test_a_key_wrong(folder, change):
    damage_spec(folder, lambda raw: raw.update(change))


@pytest.mark.parametrize(
    "text",
    [b"", b"{", b"[]", b"null", b"5", b'"x"', b"\xff\xfe", b"{}", b"[" * 100_000, b'{"a":' * 100_000, b"9" * 10_000],
)
def test_no_spec_at_all(folder, text):
    (folder / SPEC_FILE).write_bytes(text)
    with pytest.raises(ModelDamaged, match="not a model description"):
        open_folder(folder)


def test_a_spec_that_cannot_be_read(folder, monkeypatch):
    def refuse(*_args, **_named):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "read_text", refuse)
    with pytest.raises(ModelDamaged, match="Permission denied"):
        open_folder(folder)


LINE = b"0" * 64 + b"  "


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"\n",
        b"0" * 63 + b"  model.json\n",
        b"0" * 64 + b" model.json\n",
        LINE + b"\n",
        LINE + b"../model.json\n",
        LINE + b"/etc/passwd\n",
        LINE + b"absent\n",
        LINE + b"..\n",
        LINE + b"tokenizer.json\n",  # nothing of the rest would be verified
        LINE + b"model.json\n",
        b"\xff" * 64 + b"  \xff\n",
    ],
)
def test_damaged_sums(folder, text):
    (folder / SUMS_FILE).write_bytes(text)
    with pytest.raises(ModelDamaged):
        open_folder(folder)


TEXT = st.text(st.characters(codec="utf-8"), max_size=10)


@given(
    name=TEXT,
    contract=st.builds(PromptContract, TEXT, TEXT, TEXT),
    answer_token_ids=st.tuples(st.integers(0, 2**32 - 1), st.integers(0, 2**32 - 1)),
    source=st.dictionaries(TEXT, TEXT, max_size=3),
    check=st.dictionaries(TEXT, st.floats(allow_nan=False), max_size=3),
    fake=st.dictionaries(TEXT, st.none() | st.integers() | TEXT, max_size=3),
)
def test_a_spec_survives_its_file(**changes):
    spec = replace(SPEC, **changes)
    assert ModelSpec.from_json(spec.to_json()) == spec
