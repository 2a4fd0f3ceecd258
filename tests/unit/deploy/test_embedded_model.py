"""Builds by a child: a stand-in for the interpreter is what the command starts, told by the test how to go on."""

import io
import os
import signal
import sys
from argparse import Namespace

import pytest

from ostraka import embedded_model
from ostraka.answerer_options import find_other_answerer
from ostraka.command import main
from ostraka.embedded_model import find_model
from ostraka_shared.errors import ConfigError, ModelError
from tests.stand_in import write_stand_in


@pytest.fixture
def build(monkeypatch, tmp_path):
    """`find_model` where nothing is built yet and `body` is the builder."""

    def find(body):
        monkeypatch.setattr(sys, "executable", write_stand_in(tmp_path, body))
        return find_model(None, str(tmp_path / "cache"), "int8")

    return find


def test_a_missing_model_is_built_by_a_child_that_writes_to_stderr(monkeypatch, build, fake_model, tmp_path, capfd):
    monkeypatch.setitem(os.environ, "OSTRAKA_PRECISION", "fp32")
    found = [None, fake_model]
    monkeypatch.setattr(embedded_model, "find_embedded", lambda *_: found.pop(0))
    assert build("pass") is fake_model
    out, err = capfd.readouterr()
    flags = f"--precision int8 --cache-dir {tmp_path / 'cache'}"
    assert (out, err.split(" ", 1)[1]) == ("", f"-m ostraka model build {flags} []\n")


def test_a_model_that_is_there_is_not_built(monkeypatch, build, fake_model, capfd):
    monkeypatch.setattr(embedded_model, "find_embedded", lambda *_: fake_model)
    assert build("pass") is fake_model
    assert capfd.readouterr().err == ""


def test_a_name_of_the_list_is_no_path_and_the_path_is_told(fake_model, tmp_path):
    listed = tmp_path / "models" / "mine-fp32"
    listed.parent.mkdir()
    listed.symlink_to(fake_model.path)
    with pytest.raises(ModelError, match=f"no model folder at mine-fp32; .*`ostraka model list` shows is {listed}$"):
        find_model("mine-fp32", str(tmp_path), None)
    for other in ("yours-fp32", "models/mine-fp32", str(tmp_path / "mine-fp32")):
        with pytest.raises(ModelError, match=f"no model folder at {other}: build one"):
            find_model(other, str(tmp_path), None)


def test_a_folder_of_another_precision_than_was_asked_for_is_refused(fake_model):
    for asked in (None, "fp32"):
        assert find_model(str(fake_model.path), "unused", asked).path == fake_model.path
    with pytest.raises(ConfigError, match=r"--precision int8 .* in fp32, .*leave one of them out"):
        find_model(str(fake_model.path), "unused", "int8")


@pytest.mark.parametrize("source", ["flag", "variable", "key"])
def test_however_it_was_asked_for(monkeypatch, capsys, fake_model, tmp_path, source):
    file = tmp_path / "file.toml"
    file.write_text('[ostraka]\nprecision = "int8"\n')
    if source == "variable":
        monkeypatch.setitem(os.environ, "OSTRAKA_PRECISION", "int8")
    flags = {"flag": ["--precision=int8"], "variable": [], "key": [f"--config={file}"]}
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"{}")))
    assert main(["decide", "-", f"--model={fake_model.path}", *flags[source]]) == 1
    assert capsys.readouterr().err.startswith("ostraka: --precision int8 and --model ")


def test_what_is_compared_may_have_another_precision(fake_model):
    values = Namespace(cache_dir="unused", precision="int8", threads=1, concurrency=1)
    assert find_other_answerer(str(fake_model.path), values)


@pytest.mark.parametrize(("body", "code"), [("sys.exit(1)", 1), ("sys.exit(2)", 1), ("sys.exit(130)", 130)])
def test_a_failed_build_has_said_why(build, body, code):
    with pytest.raises(SystemExit) as ended:
        build(body)
    assert ended.value.code == code


def test_a_build_that_was_killed_could_say_nothing(build):
    with pytest.raises(ModelError, match="SIGKILL"):
        build("os.kill(os.getpid(), signal.SIGKILL)")


def test_a_build_that_left_nothing_is_told(build):
    with pytest.raises(ModelError, match="is not there"):
        build("pass")


def test_sigterm_is_afterwards_what_it_was(build):
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(SystemExit):
        build("sys.exit(1)")
    assert signal.getsignal(signal.SIGTERM) == before
