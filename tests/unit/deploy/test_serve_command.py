import errno
import os
import socket
import stat
import sys
from dataclasses import fields, is_dataclass
from typing import get_args, get_type_hints
from unittest.mock import Mock

import pytest

from ostraka import generation_plan, startup
from ostraka.cores import CoreLayout, read_machine
from ostraka.embedded_model import find_model
from ostraka.generation_plan import first_generation
from ostraka.serve_command import _prepare_next, listen
from ostraka.serve_config import ProcessesConfig, ServeConfig, StopConfig
from ostraka_gateway import open_files
from ostraka_gateway.config import GatewayConfig, GatewayZygoteConfig
from ostraka_gateway.http_config import HttpConfig
from ostraka_gateway.limits import Limits
from ostraka_shared import addresses
from ostraka_shared.addresses import FRONT_FOLDER, METRICS_FOLDER
from ostraka_shared.errors import ConfigError
from ostraka_shared.model_folder import SPEC_FILE
from ostraka_shared.options import add_options, build_parser, read_settings
from ostraka_worker.config import WorkerConfig, ZygoteConfig


def parse(settings, flags):
    parser = build_parser("test", "A test.")
    add_options(parser, settings)
    return read_settings(settings, parser.parse_args(flags))


def children(config, fake_model, tmp_path, *, is_pinned=True, workers=((2,), (3,)), nodes=None):
    """The settings each process is started with, read from its command line as it will."""
    layout = CoreLayout(workers, nodes or (0,) * len(workers), (0, 1), is_pinned, "")
    with listen(config.host, config.port) as listener:
        generation = first_generation(config, fake_model, layout, listener, tmp_path)
        (gateway,), found = generation.gateways, generation.workers
        assert gateway.inherited_fds == (listener.fileno(),)
        gateway.pass_fds = (*gateway.inherited_fds, 8)  # as its start would
        assert gateway.command(1)[:2] == ["-m", "ostraka_gateway"]
        assert {tuple(child.command(1)[:2]) for child in found} == {("-m", "ostraka_worker")}
        return (
            generation,
            parse(GatewayConfig, gateway.command(1)[2:]),
            [parse(WorkerConfig, child.command(4)[2:]) for child in found],
        )


def test_a_full_disk_under_the_run_dir_is_named(fake_model, tmp_path):
    run_dir = tmp_path / "run"
    front = run_dir / FRONT_FOLDER
    front.mkdir(parents=True)
    (front / SPEC_FILE).symlink_to("/dev/full")
    with pytest.raises(ConfigError, match=f"^--run-dir {run_dir}: No space left on device$"):
        children(ServeConfig(port=0), fake_model, run_dir)


def test_children_get_what_the_supervisor_was_told(fake_model, tmp_path):
    config = ServeConfig(
        port=0,
        batch_tokens=128,
        queue_tokens=5000,
        answer_cache_bytes=70_000,
        deadline_ms=1234,
        stop=StopConfig(grace_s=3.0),
        processes=ProcessesConfig(idle_call_s=7.5),
        log_format="json",
        log_level="debug",
    )
    _, gateway, workers = children(config, fake_model, tmp_path)
    assert (gateway.queue_tokens, gateway.deadline_ms, gateway.answer_cache_bytes) == (5000, 1234, 70_000)
    assert gateway.grace_s == pytest.approx(0.5)
    assert gateway.workers_at == f"ipc://{tmp_path}/workers.sock"
    assert gateway.http == config.http
    for each in (gateway, *workers):
        assert (each.log_format, each.log_level, each.model) == ("json", "debug", str(fake_model.path))
    assert gateway.cluster.wanted_workers == len(workers)
    for number, worker in enumerate(workers):
        assert worker.cluster_id == gateway.cluster.cluster_id
        assert worker.worker_id == f"w{number}"
        assert worker.gateway == (gateway.workers_at,)
        assert worker.batch_tokens == 128
        assert worker.incarnation == 4
        assert worker.cores == (2 + number,)
        assert worker.idle_call_s == 7.5


def test_clusters_of_one_machine_do_not_mix(fake_model, tmp_path):
    ids = {children(ServeConfig(port=0), fake_model, tmp_path)[1].cluster.cluster_id for _ in range(3)}
    assert len(ids) == 3


@pytest.mark.parametrize("is_pinned", [True, False])
def test_a_worker_of_two_cores_has_two_threads_pinned_or_not(fake_model, tmp_path, is_pinned):
    layout = {"workers": ((0, 1), (2, 3)), "is_pinned": is_pinned}
    _, _, workers = children(ServeConfig(port=0), fake_model, tmp_path, **layout)
    assert [worker.threads for worker in workers] == [2, 2]
    assert [worker.cores for worker in workers] == ([(0, 1), (2, 3)] if is_pinned else [(), ()])


def test_gateways_are_forked_from_one_that_knows_what_they_are_told(fake_model, tmp_path):
    http = HttpConfig(name="served", limits=Limits(score_levels=4))
    generation, gateway, _ = children(ServeConfig(port=0, http=http), fake_model, tmp_path)
    zygote = generation.zygotes[0]
    assert generation.gateways[0].fork_from == zygote.fork
    zygote.pass_fds = (7,)  # as its start would
    assert zygote.command(1)[:2] == ["-m", "ostraka_gateway.zygote"]
    found = parse(GatewayZygoteConfig, zygote.command(1)[2:])
    assert (found.name, found.limits, found.model_front) == (http.name, http.limits, gateway.cluster.model_front)
    assert (found.control_fd, found.generation, found.figures_at) == (7, generation.number, gateway.figures_at)


def zygotes(generation):
    """Of each: its settings, and the names of the workers that it forks."""
    found = []
    for zygote in generation.zygotes[1:]:  # the first is the gateways'
        zygote.pass_fds = (7,)  # as its start would
        workers = [worker.name for worker in generation.workers if worker.fork_from == zygote.fork]
        assert zygote.command(1)[:2] == ["-m", "ostraka_worker.zygote"]
        found.append((parse(ZygoteConfig, zygote.command(1)[2:]), workers))
    return found


@pytest.mark.parametrize("is_pinned", [True, False])
def test_each_node_has_a_zygote_on_the_cores_of_its_workers(fake_model, tmp_path, is_pinned):
    layout = {"workers": ((0,), (1,), (4,)), "nodes": (0, 0, 1), "is_pinned": is_pinned}
    generation, _, _ = children(ServeConfig(port=0, log_format="json"), fake_model, tmp_path, **layout)
    (near, near_workers), (far, far_workers) = zygotes(generation)
    assert (near_workers, far_workers) == (["w0", "w1"], ["w2"])
    assert (near.cores, far.cores) == (((0, 1), (4,)) if is_pinned else ((), ()))
    assert (near.model, near.control_fd, near.log_format) == (str(fake_model.path), 7, "json")


@pytest.mark.parametrize(
    ("config", "workers"),
    [
        (ServeConfig(port=0, processes=ProcessesConfig(worker_start="load")), ((2,), (3,))),
        (ServeConfig(port=0), ((2, 3),)),
    ],
)
def test_workers_that_load_for_themselves_or_have_several_threads_have_no_zygote(fake_model, tmp_path, config, workers):
    generation, _, _ = children(config, fake_model, tmp_path, workers=workers)
    assert [zygote.name for zygote in generation.zygotes] == ["gateway zygote"]
    assert {worker.fork_from for worker in generation.workers} == {None}


@pytest.mark.parametrize(
    ("host", "shown"),
    [
        ("127.0.0.1", "127.0.0.1"),
        ("0.0.0.0", "0.0.0.0"),  # noqa: S104
        ("localhost", "127.0.0.1"),
    ],
)
def test_where_it_listens(host, shown):
    with listen(host, 0) as listener:
        assert startup.shown(listener) == f"http://{shown}:{listener.getsockname()[1]}"


def test_counts_of_an_earlier_server_are_forgotten_and_nothing_else(fake_model, tmp_path):
    (tmp_path / METRICS_FOLDER).mkdir()
    counts, foreign = (tmp_path / METRICS_FOLDER / name for name in ("counter_gateway1.db", "mine.db"))
    for each in (counts, foreign):
        each.touch()
    children(ServeConfig(port=0), fake_model, tmp_path)
    assert (counts.exists(), foreign.exists()) == (False, True)


def test_each_gateway_has_its_own_place_and_each_worker_dials_them_all(fake_model, tmp_path):
    config = ServeConfig(port=0, processes=ProcessesConfig(gateways=3))
    with listen(config.host, config.port) as listener:
        layout = CoreLayout(((2,), (3,)), (0, 0), (0, 1), True, "")
        built = first_generation(config, fake_model, layout, listener, tmp_path)
        assert {child.inherited_fds for child in built.gateways} == {(listener.fileno(),)}
        for child in built.gateways:
            child.pass_fds = (*child.inherited_fds, 8)
        gateways = [parse(GatewayConfig, child.command(1)[2:]) for child in built.gateways]
    workers = [parse(WorkerConfig, child.command(1)[2:]) for child in built.workers]
    assert [child.name for child in built.gateways] == ["gateway", "gateway1", "gateway2"]
    assert [gateway.number for gateway in gateways] == [0, 1, 2]
    assert len({gateway.workers_at for gateway in gateways}) == 3
    assert {gateway.figures_at for gateway in gateways} == {tuple(built.figures_at)}
    assert len(set(built.figures_at)) == 3
    assert {worker.gateway for worker in workers} == {tuple(gateway.workers_at for gateway in gateways)}


@pytest.mark.parametrize(
    "flag",
    [
        "--port=-1",
        "--port=65536",
        "--batch-tokens=0",
        "--gateways=0",
        "--queue-tokens=0",
        "--answer-cache-bytes=-1",
        "--deadline-ms=0",
        "--grace-s=-1",
        "--grace-s=nan",
        "--idle-call-s=-1",
    ],
)
def test_settings_that_cannot_work_are_refused_before_anything_is_started(flag):
    with pytest.raises(ConfigError, match=flag.partition("=")[0]):
        parse(ServeConfig, [flag])


def test_a_taken_port_is_named():
    with listen("127.0.0.1", 0) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ConfigError, match=f"127.0.0.1:{port}"), listen("127.0.0.1", port):
            pass


def test_an_address_that_is_not_ours_is_named():
    with pytest.raises(ConfigError, match=r"192\.0\.2\.1:0: --host is not an address of"), listen("192.0.2.1", 0):
        pass


def test_a_name_that_nobody_knows_is_not_taken_for_a_port_in_use(monkeypatch):
    """Said by the resolver; here, no packet is sent to one."""
    unknown = socket.gaierror(socket.EAI_NONAME, "Name or service not known")
    monkeypatch.setattr(socket.socket, "bind", Mock(side_effect=unknown))
    said = r"nosuch\.invalid:0: --host is no address, and no name that is known here \(Name or service not known\)$"
    with pytest.raises(ConfigError, match=said), listen("nosuch.invalid", 0):
        pass


def test_a_client_can_connect_before_anyone_accepts():
    """It then waits for a gateway that is being restarted, instead of being refused."""
    with listen("127.0.0.1", 0) as listener, socket.create_connection(listener.getsockname(), timeout=5) as client:
        assert client.getpeername() == listener.getsockname()


def test_the_port_is_free_again_afterwards():
    with listen("127.0.0.1", 0) as listener:
        port = listener.getsockname()[1]
    with listen("127.0.0.1", port):
        pass


def mode(path):
    return stat.S_IMODE(path.stat().st_mode)


def test_the_folder_of_a_model_may_begin_with_a_tilde(fake_model, monkeypatch):
    monkeypatch.setenv("HOME", str(fake_model.path.parent))
    assert find_model("~/model", "unused", "fp32").fingerprint == fake_model.fingerprint


def options(settings):
    """(name, a value that is not its default, that value as text) of each field, those of groups among them."""
    for each, hint in ((each, get_type_hints(settings)[each.name]) for each in fields(settings)):
        if is_dataclass(hint):
            yield from options(hint)
        elif choices := each.metadata["choices"]:
            other = next(choice for choice in choices if choice != each.default)
            yield each.name, other, other
        elif hint is bool:
            yield each.name, not each.default, "true"
        else:
            kind = (get_args(hint) or (hint,))[0]
            value = "elsewhere" if kind is str else kind((each.default or 0) + 1)
            yield each.name, value, str(value)


def find(settings, name):
    """Of a field of its own, or of its groups."""
    groups = [value for value in vars(settings).values() if is_dataclass(value)]
    return getattr(settings, name) if hasattr(settings, name) else next(find(g, name) for g in groups if has(g, name))


def has(settings, name):
    return name in {found for found, _, _ in options(type(settings))}


@pytest.mark.parametrize(("name", "value", "text"), list(options(ServeConfig)), ids=str)
def test_no_option_of_serve_is_without_a_flag_or_a_variable(monkeypatch, name, value, text):
    assert find(parse(ServeConfig, []), name) != value
    flag = f"--{name.replace('_', '-')}"
    assert find(parse(ServeConfig, [flag] if isinstance(value, bool) else [f"{flag}={text}"]), name) == value
    monkeypatch.setitem(os.environ, f"OSTRAKA_{name.upper()}", text)
    assert find(parse(ServeConfig, []), name) == value


@pytest.fixture
def next_one(monkeypatch, fake_model, tmp_path):
    """`next_one(flags)`: what another generation's gateway is started with, where those are the flags by now."""

    def prepared(*flags, run_dir=tmp_path):
        monkeypatch.setattr(sys, "argv", ["ostraka", "serve", *flags])
        before = ServeConfig(port=0, stop=StopConfig(grace_s=10.0), run_dir=str(tmp_path))
        with listen(before.host, before.port) as listener:
            generation = _prepare_next(before, read_machine(), listener, run_dir)(fake_model, 2)
        (gateway,) = generation.gateways
        gateway.pass_fds = (*gateway.inherited_fds, 8)
        return generation, parse(GatewayConfig, gateway.command(1)[2:])

    return prepared


def test_another_generation_has_the_settings_of_now_but_for_the_supervisors_own(next_one, tmp_path):
    generation, gateway = next_one(
        "--workers=1", "--deadline-ms=777", "--grace-s=99", "--run-dir=/elsewhere", "--port=1"
    )
    assert gateway.deadline_ms == 777
    assert gateway.grace_s == pytest.approx(7.5)
    assert (gateway.rollout.standby, gateway.rollout.generation) == (True, 2)
    assert generation.run_dir == tmp_path / "2"
    assert stat.S_IMODE(generation.run_dir.stat().st_mode) == 0o700


@pytest.mark.parametrize("flag", ["--connections=1000", "--no-such-flag", "--gateways=0"])
def test_another_generation_that_cannot_be_is_refused(next_one, monkeypatch, flag):
    monkeypatch.setattr(open_files.resource, "getrlimit", lambda _: (256, 1024))
    with pytest.raises(ConfigError):
        next_one("--workers=1", flag)


def test_a_run_dir_that_is_too_long_for_another_generations_sockets_is_said(next_one, tmp_path, monkeypatch):
    """Though it is short enough for those of the first."""
    run_dir = tmp_path / "run"
    run_dir.mkdir()
    monkeypatch.setattr(addresses, "MAX_IPC_PATH_BYTES", len(os.fsencode(run_dir / "workers.sock")))
    with pytest.raises(ConfigError, match="--run-dir"):
        next_one("--workers=1", run_dir=run_dir)
    assert list(run_dir.iterdir()) == [], "nothing is left of it"


def test_nothing_is_left_of_another_generation_whose_files_cannot_be_kept(next_one, tmp_path, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(generation_plan, "write_front", full)
    with pytest.raises(ConfigError, match="No space"):
        next_one("--workers=1")
    assert not (tmp_path / "2").exists()
