import os
from pathlib import Path

import pytest
import zmq

from ostraka_shared.addresses import MAX_IPC_PATH_BYTES, check_endpoint, host_id, ipc_endpoint
from ostraka_shared.errors import ConfigError


@pytest.fixture
def run_dir(tmp_path):
    folder = tmp_path / "run"
    folder.mkdir(mode=0o700)
    return folder


def test_a_socket_in_a_private_folder_is_fine(run_dir):
    check_endpoint(ipc_endpoint(run_dir))


@pytest.mark.parametrize("mode", [0o701, 0o710, 0o704, 0o750, 0o755, 0o777, 0o1777])
def test_a_folder_that_others_can_enter_is_refused(run_dir, mode):
    run_dir.chmod(mode)
    with pytest.raises(ConfigError, match=f"{mode:04o}"):
        check_endpoint(ipc_endpoint(run_dir))


def test_a_folder_of_another_user_is_refused(run_dir, monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: run_dir.stat().st_uid + 1)
    with pytest.raises(ConfigError, match="belongs to user"):
        check_endpoint(ipc_endpoint(run_dir))


def test_a_missing_folder_is_named(tmp_path):
    with pytest.raises(ConfigError, match="No such file"):
        check_endpoint(ipc_endpoint(tmp_path / "absent"))


@pytest.mark.parametrize("place", ["@ostraka", "@ostraka/workers.sock", "*", "", "workers.sock", "./run/workers.sock"])
def test_an_ipc_name_that_is_no_absolute_path_is_refused_even_in_a_private_folder(run_dir, monkeypatch, place):
    """`@name` is a socket without a file: whoever runs on this machine could reach it."""
    monkeypatch.chdir(run_dir)
    (run_dir / "run").mkdir(mode=0o700)
    (run_dir / "@ostraka").mkdir(mode=0o700)
    with pytest.raises(ConfigError, match="absolute"):
        check_endpoint(f"ipc://{place}")


def test_the_longest_path_is_what_the_system_takes(run_dir):
    """Both limits are the same limit: what passes here can be bound, and one byte more cannot."""
    room = MAX_IPC_PATH_BYTES - len(os.fsencode(run_dir)) - 1
    longest, longer = (f"ipc://{run_dir}/{'s' * n}" for n in (room, room + 1))
    check_endpoint(longest)
    with pytest.raises(ConfigError, match="--run-dir"):
        check_endpoint(longer)
    with zmq.Context() as context, context.socket(zmq.ROUTER) as socket:
        socket.bind(longest)
        with pytest.raises(zmq.ZMQError):
            socket.bind(longer)


def test_the_length_counts_bytes(run_dir):
    room = MAX_IPC_PATH_BYTES - len(os.fsencode(run_dir)) - 1
    with pytest.raises(ConfigError, match="longer"):
        check_endpoint(f"ipc://{run_dir}/{'θ' * (room // 2 + 1)}")


@pytest.mark.parametrize("endpoint", ["tcp://127.0.0.1:5555", "tcp://127.8.9.1:0", "tcp://[::1]:5555"])
def test_loopback_is_fine(endpoint):
    check_endpoint(endpoint)


@pytest.mark.parametrize(
    "endpoint",
    [
        "tcp://0.0.0.0:5555",
        "tcp://*:5555",
        "tcp://10.0.0.1:5555",
        "tcp://[::]:5555",
        "tcp://eth0:5555",
        "tcp://localhost:5555",  # a name is whatever the resolver says
        "tcp://127.0.0.1:0;10.0.0.1:5555",  # ZeroMQ's source;destination
        "tcp://127.0.0.1;10.0.0.1:5555",
        "tcp://127.0.0.1",
        "tcp://",
        "inproc://x",
        "pgm://127.0.0.1:5555",
        "127.0.0.1:5555",
        "",
    ],
)
def test_anything_else_is_refused(endpoint):
    with pytest.raises(ConfigError):
        check_endpoint(endpoint)


def test_the_host_id_is_of_this_pid_namespace():
    assert host_id() == host_id()
    assert host_id().endswith(str(Path(f"/proc/{os.getpid()}/ns/pid").readlink()))
