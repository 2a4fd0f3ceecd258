"""Processes that are forked from one that has loaded: whose they are, and what becomes of those that cannot be."""

import os
import random
import shutil
import signal
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from ostraka.children import FEW_MUTE, Child
from ostraka.forking import (
    FEW_DEATHS,
    reap_strays,
)
from ostraka.restarts import RestartPolicy
from ostraka_shared.model_folder import ModelFolder
from ostraka_shared.process_control import _libc, adopt_orphans
from ostraka_worker.build.builder import Form, build_source
from ostraka_worker.build.progress import Silent
from tests.fake_model import make_fake_model
from tests.integration.parts.zygote_bench import Bench, bench_of
from tests.unit.worker.build.tiny import write_tiny
from tests.waiting import wait_until


@pytest.fixture
def fake_model(tmp_path: Path) -> ModelFolder:
    """Each test's own: some change its files."""
    return make_fake_model(tmp_path / "model")


@pytest.fixture
def bench(fake_model: ModelFolder, tmp_path: Path) -> Iterator[Bench]:
    yield from bench_of(fake_model, tmp_path)


@pytest.fixture(scope="module")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> ModelFolder:
    folder = tmp_path_factory.mktemp("tiny")
    return build_source(write_tiny(folder / "tiny.gguf"), folder / "model", "tiny", "int8", Form("0", "1"), Silent())


@pytest.fixture
def real_bench(tiny_model: ModelFolder, tmp_path: Path) -> Iterator[Bench]:
    yield from bench_of(tiny_model, tmp_path)


def test_a_fork_is_a_child_of_ours_in_a_group_of_its_own_and_tells_how_it_ends(bench: Bench) -> None:
    first, second = bench.fork("w0"), bench.fork("w1")
    for each in (first, second):
        process = psutil.Process(each.pid)
        assert (process.ppid(), os.getpgid(each.pid)) == (os.getpid(), each.pid)
        assert each.poll() is None
    first.send_signal(signal.SIGKILL)
    assert first.wait() == -signal.SIGKILL
    second.send_signal(signal.SIGTERM)
    assert second.wait() == 0  # it drained: its handlers are its own
    assert bench.zygote.reap() is None


def test_the_real_engine_is_forked_from_a_process_of_one_thread(real_bench: Bench) -> None:
    spare = real_bench.spare()
    assert (real_bench.process.num_threads(), spare.num_threads()) == (1, 1)
    worker = real_bench.fork()
    assert real_bench.process.num_threads() == 1
    assert psutil.Process(worker.pid).num_threads() > 1  # ZeroMQ's, in the worker alone


def test_a_process_of_several_threads_is_not_forked(tmp_path: Path) -> None:
    for bench in bench_of(make_fake_model(tmp_path / "model", starts_thread=True), tmp_path):
        assert "has 2 threads" in bench.failure(bench.ask())
        assert "has 2 threads" in bench.failure(bench.ask())
        assert bench.zygote.reap() is None


def test_a_worker_outlives_the_zygote_and_its_spare_does_not(bench: Bench) -> None:
    worker, spare = bench.fork(), bench.spare()
    bench.process.kill()
    assert wait_until(bench.zygote.reap) == -signal.SIGKILL
    wait_until(lambda: spare.status() == psutil.STATUS_ZOMBIE)
    reap_strays({worker.pid})
    assert not spare.is_running()
    assert worker.poll() is None
    assert bench.zygote.fork(["x"]) is None
    bench.zygote.start()
    assert bench.fork("w1").poll() is None


def test_who_waits_for_a_zygote_that_dies_is_told(bench: Bench) -> None:
    bench.process.suspend()
    asked = bench.ask()
    assert asked.poll() is None
    bench.process.kill()
    assert "has ended" in bench.failure(asked)
    assert asked.poll() is not None  # told once


def test_forks_that_have_no_memory_to_begin_with_are_followed_by_one_that_loads_for_itself(bench: Bench) -> None:
    """What a spare does before its turn needs none; its sockets' threads do."""
    bench.fork("w0")
    limit = bench.process.memory_info().vms + (4 << 20)
    bench.process.rlimit(psutil.RLIMIT_AS, (limit, limit))
    bench.fork("w1").send_signal(signal.SIGKILL)  # of before the limit
    command = ["-m", "ostraka_worker", *bench.flags("w2")]
    child = Child("w2", lambda _: command, RestartPolicy(random.random), fork_from=bench.zygote.fork)
    for _ in range(FEW_MUTE):
        child.start()
        assert wait_until(child.reap) == -signal.SIGABRT
        child.schedule_restart(has_been_ready=True)
    child.start()
    assert (child.forked, bench.zygote.reap()) == (None, None)
    child.send(signal.SIGKILL)
    assert wait_until(child.reap) == -signal.SIGKILL


def test_what_was_given_up_never_begins(bench: Bench) -> None:
    bench.fork("w0")
    bench.process.suspend()
    asked = bench.ask("w1")
    asked.send_signal(signal.SIGTERM)
    assert asked.poll() == -signal.SIGTERM
    spare = bench.spare()
    bench.process.resume()
    wait_until(lambda: spare.status() == psutil.STATUS_ZOMBIE)
    assert {child.name() for child in psutil.Process().children()} & {"ostraka w1"} == set()


def test_a_spare_that_died_is_made_good(bench: Bench) -> None:
    spare = bench.spare()
    spare.kill()
    wait_until(lambda: spare.status() == psutil.STATUS_ZOMBIE)
    worker = bench.fork()
    kept = [each for each in psutil.Process(worker.pid).net_connections("unix") if each.type == socket.SOCK_SEQPACKET]
    assert (worker.poll(), kept) == (None, []), "it was forked while the zygote had its channel open"


def test_a_zygote_that_has_just_died_is_started_for_a_worker_that_is_wanted_meanwhile(bench: Bench) -> None:
    bench.fork("w0")
    bench.zygote.send(signal.SIGKILL)
    wait_until(lambda: bench.zygote.reap() is not None)
    bench.zygote.policy.quick_deaths = 1
    bench.zygote.schedule_restart(has_been_ready=True)
    assert bench.zygote.restart_at > time.monotonic(), "its second death: it would be started a moment later"
    assert bench.fork("w1").poll() is None
    bench.zygote.send(signal.SIGKILL)
    wait_until(lambda: bench.zygote.reap() is not None)
    bench.zygote.policy.quick_deaths = FEW_DEATHS
    bench.zygote.schedule_restart(has_been_ready=True)
    assert bench.zygote.fork([]) is None, "it dies too often to be waited for"


def test_a_model_whose_files_are_gone_is_forked_from_memory(bench: Bench) -> None:
    bench.fork("w0")
    shutil.rmtree(bench.model.path)
    assert [bench.fork(name).poll() for name in ("w1", "w2")] == [None, None]


def test_a_model_that_cannot_load_is_told_to_who_waits(tmp_path: Path) -> None:
    for bench in bench_of(make_fake_model(tmp_path / "model", fail_to_load="no such kernel"), tmp_path):
        assert "has ended" in bench.failure(bench.ask())
        assert wait_until(bench.zygote.reap) == 1


def test_strays_are_reaped_up_to_a_known_one() -> None:
    assert adopt_orphans()
    try:
        stray = os.fork()
        if not stray:
            os._exit(0)
        os.waitid(os.P_PID, stray, os.WEXITED | os.WNOWAIT)
        reap_strays({stray})
        assert psutil.Process(stray).status() == psutil.STATUS_ZOMBIE
        reap_strays(set())
        assert not psutil.pid_exists(stray)
    finally:
        _libc.prctl(36, 0, 0, 0, 0)
