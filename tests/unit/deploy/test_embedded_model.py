"""Builds by a child: a stand-in for the interpreter is what the command starts, told by the test how to go on."""

import io
import os
import signal
import subprocess
import sys
from argparse import Namespace

import psutil
import pytest

from ostraka import embedded_model
from ostraka.answerer_options import find_other_answerer
from ostraka.command import main
from ostraka.embedded_model import find_model
from ostraka_shared.errors import ConfigError, ModelError
from tests.waiting import wait_until

STAND_IN = """#!{python}
import os, signal, sys
try:
    print(os.getpid(), *sys.argv[1:], sorted(n for n in os.environ if n.startswith("OSTRAKA_")), flush=True)
    {body}
except KeyboardInterrupt:
    print("its line", flush=True)
    sys.exit(130)
"""

DRIVER = """
import sys
from ostraka import __main__ as command, decide_command
sys.executable = sys.argv[1]
sys.exit(command.main(["decide", "-", "--lines", "--cache-dir", sys.argv[2]]))
"""


@pytest.fixture
def stand_in(tmp_path):
    def make(body):
        path = tmp_path / "python"
        path.write_text(STAND_IN.format(python=sys.executable, body=body))
        path.chmod(0o755)
        return str(path)

    return make


@pytest.fixture
def build(monkeypatch, stand_in, tmp_path):
    """`find_model` where nothing is built yet and `body` is the builder."""

    def find(body):
        monkeypatch.setattr(sys, "executable", stand_in(body))
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


def test_a_server_that_is_told_both_does_not_start(fake_model):
    command = [sys.executable, "-m", "ostraka", "serve", "--port=0", f"--model={fake_model.path}", "--precision=int8"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert "ostraka: --precision int8 and --model " in done.stderr


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


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, -1), (signal.SIGKILL, -9)]
)
def test_however_the_command_ends_its_build_does_too_and_in_order(stand_in, tmp_path, number, code):
    command = [sys.executable, "-c", DRIVER, stand_in("signal.pause()"), str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as running:
        building = psutil.Process(int(running.stderr.readline().split()[0]))
        assert building.ppid() == running.pid
        running.send_signal(number)
        assert running.stderr.read() == "its line\n"
        assert running.wait(20) == code
    wait_until(lambda: not building.is_running())


def test_the_real_builders_line_is_the_only_one(tmp_path):
    (tmp_path / "file").touch()
    command = [sys.executable, "-m", "ostraka", "serve", "--port=0", f"--cache-dir={tmp_path / 'file' / 'cache'}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert len(done.stderr.splitlines()) == 1
    assert done.stderr.startswith(f"ostraka: --cache-dir (or OSTRAKA_CACHE_DIR) {tmp_path / 'file' / 'cache'}: ")
