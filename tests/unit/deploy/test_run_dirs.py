"""A run directory is private, locked, and removed with its server; one that a killed server left, by the next."""

import fcntl
import os
import shutil
import socket
import stat
import tempfile
from contextlib import ExitStack

import pytest

from ostraka.front_desk import FrontDesk
from ostraka.ground import lock_folder
from ostraka.run_dirs import private_run_dir, sweep
from ostraka_shared.addresses import FRONT_FOLDER, METRICS_FOLDER
from ostraka_shared.death_notes import KILLED, leave_note
from ostraka_shared.errors import ConfigError
from ostraka_shared.front_files import NAMES


def mode(path):
    return stat.S_IMODE(path.stat().st_mode)


def test_a_fresh_run_dir_is_private_and_removed(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    with private_run_dir(None) as folder:
        assert folder.parent == tmp_path
        assert mode(folder) == 0o700
        (folder / "workers.sock").touch()
    assert not folder.exists()


@pytest.mark.parametrize("value", ["", "/nonexistent/run/user/1000"])
def test_a_runtime_dir_that_is_not_there_does_not_matter(monkeypatch, tmp_path, value):
    monkeypatch.setenv("XDG_RUNTIME_DIR", value)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with private_run_dir(None) as folder:
        assert (mode(folder), folder.parent) == (0o700, tmp_path)


def test_a_fresh_run_dir_with_too_long_a_path_is_refused_here_and_not_by_a_child(monkeypatch, tmp_path):
    deep = tmp_path / ("d" * 100)
    deep.mkdir()
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(deep))
    with pytest.raises(ConfigError, match="--run-dir"), private_run_dir(None):
        pass
    assert list(deep.iterdir()) == []


def test_a_run_dir_that_was_asked_for_is_made_and_stays(tmp_path):
    asked = tmp_path / "a" / "run"
    for _ in range(2):
        with private_run_dir(str(asked)) as folder:
            assert folder == asked
            assert mode(asked) == 0o700
    assert asked.is_dir()


def test_a_run_dir_serves_one_server_at_a_time(tmp_path):
    run_dir = str(tmp_path / "run")
    in_use = pytest.raises(ConfigError, match="in use by another server")
    with private_run_dir(run_dir), in_use, private_run_dir(run_dir):
        pass
    with private_run_dir(run_dir):
        pass


def test_a_relative_run_dir_is_made_absolute_for_the_children(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    with private_run_dir("run") as folder:
        assert folder == tmp_path / "run"


def test_an_open_run_dir_is_refused_not_closed(tmp_path):
    shared = tmp_path / "shared"
    shared.mkdir(mode=0o755)
    with pytest.raises(ConfigError, match=r"--run-dir: .*0755"), private_run_dir(str(shared)):
        pass
    assert mode(shared) == 0o755


@pytest.mark.parametrize("what", ["a file", "below a file"])
def test_a_run_dir_that_cannot_be_made_is_named(tmp_path, what):
    file = tmp_path / "file"
    file.touch()
    asked = file if what == "a file" else file / "run"
    with pytest.raises(ConfigError, match=f"--run-dir {asked}"), private_run_dir(str(asked)):
        pass


@pytest.fixture
def left(tmp_path_factory):
    """All that a killed server may leave, and what a link in it leads to."""
    base = tmp_path_factory.mktemp("a")  # a folder named after the test may be too long for a socket's address
    folder = base / "place" / "ostraka-x1y2z3_4"
    folder.mkdir(mode=0o700, parents=True)
    with ExitStack() as sockets:
        for name in ("control.sock", "workers.sock", "workers1.sock", "figures.sock"):
            sockets.enter_context(socket.socket(socket.AF_UNIX)).bind(str(folder / name))
    leave_note(folder, "w0", 1, KILLED)
    (folder / "w1.0a1b2c3d").touch()  # it was killed as it left a note
    elsewhere = base / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "kept").touch()
    for generation in (folder, folder / "2"):
        for inner in (generation, generation / METRICS_FOLDER, generation / FRONT_FOLDER):
            inner.mkdir(exist_ok=True)
        for name in ("counter_gateway.db", "histogram_gateway1.db", "counter_gateway.lost.db"):
            (generation / METRICS_FOLDER / name).touch()
        for name in NAMES:
            (generation / FRONT_FOLDER / name).touch()
    for name in ("gateway.sock", "gateway1.sock.connections", "workers.sock", "w0.died"):
        (folder / "2" / name).touch()
    (folder / "workers2.sock").symlink_to(elsewhere)
    yield folder
    assert (elsewhere / "kept").exists()


def test_what_a_killed_server_has_left_is_swept_by_the_next(left, monkeypatch):
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(left.parent))
    with private_run_dir(None) as folder:
        assert list(left.parent.iterdir()) == [folder]


def test_who_lives_is_left_alone(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    with private_run_dir(None) as first, FrontDesk(first), private_run_dir(None) as second, FrontDesk(second):
        sweep(tmp_path)
        assert {first, second} == set(tmp_path.iterdir())


@pytest.mark.parametrize(
    "change",
    [
        lambda left: (left / "notes.txt").touch(),
        lambda left: (left / "2" / "notes.txt").touch(),
        lambda left: (left / "2" / "link").symlink_to(left.parent.parent / "elsewhere"),
        lambda left: (left / "metrics" / "notes.txt").touch(),
        lambda left: (left / "2" / "model" / "weights").mkdir(),
        lambda left: (left / "2" / "3").mkdir(),
        lambda left: (left / "3").symlink_to(left / "2"),
        lambda left: (left / "4").touch(),
        lambda left: (left / "control.sock").unlink(),
        lambda left: ((left / "control.sock").unlink(), (left / "control.sock").touch()),
        lambda left: left.chmod(0o755),
        lambda left: shutil.move(left, left.with_name("cluster-x1y2z3_4")),
        lambda left: shutil.move(left, left.with_name("ostraka-production")),
        lambda left: (shutil.move(left, left.parent.parent / "moved"), left.symlink_to(left.parent.parent / "moved")),
    ],
    ids=[
        "something else in it",
        "something else in a generation's",
        "a link in a generation's",
        "something else beside the counts",
        "something else beside the model's small files",
        "a generation in a generation's",
        "a link to a generation's",
        "a file named as a generation's",
        "no socket",
        "no socket of that name",
        "open to others",
        "another name",
        "a name that was asked for",
        "a link",
    ],
)
def test_what_may_be_somebodys_own_is_left_alone(left, change):
    change(left)
    before = sorted(left.parent.rglob("*"))
    sweep(left.parent)
    assert sorted(left.parent.rglob("*")) == before


def test_one_that_is_just_being_made_is_not_even_locked(monkeypatch, tmp_path):
    (tmp_path / "ostraka-x1y2z3_4").mkdir(mode=0o700)
    monkeypatch.setattr(fcntl, "flock", lambda *_: pytest.fail("its server would find it in use"))
    sweep(tmp_path)


def test_what_is_another_users_is_left_alone(left, monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: left.stat().st_uid + 1)
    sweep(left.parent)
    assert left.exists()


def test_what_is_locked_is_left_alone(left):
    descriptor = lock_folder(left)
    sweep(left.parent)
    assert left.exists()
    os.close(descriptor)
    sweep(left.parent)
    assert not left.exists()
