"""A real zygote and what is forked from it, with this process as the supervisor: no gateway answers the workers."""

import contextlib
import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from ostraka import forking
from ostraka.children import FEW_MUTE, Child, ForkFailed
from ostraka.forking import (
    FEW_DEATHS,
    SILENT_S,
    STOPPED_S,
    UNSERVED_S,
    WAITED_FOR_S,
    ForkedProcess,
    Zygote,
    reap_strays,
)
from ostraka.restarts import RestartPolicy
from ostraka_shared.model_folder import ModelFolder
from ostraka_shared.options import to_flags
from ostraka_shared.process_control import _libc, adopt_orphans
from ostraka_worker.build.builder import Form, build_source
from ostraka_worker.build.progress import Silent
from ostraka_worker.config import WorkerConfig, ZygoteConfig
from tests.clocks import FakeClock
from tests.fake_model import make_fake_model
from tests.unit.worker.build.tiny import write_tiny
from tests.waiting import wait_until


class Bench:
    def __init__(self, model: ModelFolder, folder: Path) -> None:
        self.run_dir = folder / "run"
        self.run_dir.mkdir(mode=0o700)
        self.model = model
        self.others = {child.pid for child in psutil.Process().children()}
        self.all_asked: list[ForkedProcess] = []
        self.zygote = Zygote("zygote", self._command, RestartPolicy(random.random))
        self.zygote.start()

    def _command(self, _: int) -> list[str]:
        config = ZygoteConfig(str(self.model.path), self.zygote.pass_fds[0], log_format="json")
        return ["-m", "ostraka_worker.zygote", *to_flags(config)]

    def flags(self, name: str) -> list[str]:
        config = WorkerConfig((f"ipc://{self.run_dir}/workers.sock",), str(self.model.path), name, log_format="json")
        return to_flags(config)

    def ask(self, name: str = "w0") -> ForkedProcess:
        asked = self.zygote.fork(self.flags(name))
        assert asked
        self.all_asked.append(asked)
        return asked

    def fork(self, name: str = "w0") -> ForkedProcess:
        """One that serves: it takes SIGTERM in its own way."""
        asked = self.ask(name)
        wait_until(lambda: asked.poll() or asked.has_served)
        assert asked.poll() is None
        assert catches(asked.pid, signal.SIGTERM)
        assert psutil.Process(asked.pid).name() == f"ostraka {name}"
        return asked

    def failure(self, asked: ForkedProcess) -> str:
        def failed() -> str | None:
            try:
                assert asked.poll() is None
            except ForkFailed as bad:
                return str(bad)
            return None

        found = wait_until(failed)
        assert found
        return found

    @property
    def process(self) -> psutil.Process:
        assert self.zygote.process
        return psutil.Process(self.zygote.process.pid)

    def spare(self) -> psutil.Process:
        def found() -> psutil.Process | None:
            each: psutil.Process
            for each in psutil.Process().children():
                if each.name() == "ostraka spare" and each.status() != psutil.STATUS_STOPPED:
                    return each
            return None

        return wait_until(found)  # type: ignore[return-value]

    def close(self) -> None:
        self.zygote.hang_up()
        for asked in self.all_asked:
            if asked.channel:
                asked.channel.close()
        if self.zygote.process:
            self.zygote.send(signal.SIGKILL)
            self.zygote.process.wait()
        while mine := [child for child in psutil.Process().children() if child.pid not in self.others]:
            for child in mine:
                child.kill()
                with contextlib.suppress(ChildProcessError):  # not everyone's parent is this process yet
                    os.waitpid(child.pid, 0)


def catches(pid: int, number: signal.Signals) -> bool:
    status = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    caught = next(line for line in status.splitlines() if line.startswith("SigCgt:"))
    return bool(int(caught.split()[1], 16) >> (number - 1) & 1)


def bench_of(model: ModelFolder, folder: Path) -> Iterator[Bench]:
    found = Bench(model, folder)
    try:
        yield found
    finally:
        found.close()
        _libc.prctl(36, 0, 0, 0, 0)  # other tests' orphans are not ours


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


def test_a_stopped_zygote_is_killed_and_who_waits_is_told(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = FakeClock().install(monkeypatch, forking)
    bench.fork("w0")
    bench.process.suspend()
    clock.advance(100.0)  # that nothing was asked for is no reason
    asked = bench.ask("w1")
    clock.advance(SILENT_S - 0.1)
    assert asked.poll() is None
    clock.advance(0.1)
    with pytest.raises(ForkFailed, match="does not answer") as failed:
        asked.poll()
    assert not failed.value.may_be_repeated
    assert wait_until(bench.zygote.reap) == -signal.SIGKILL


def test_a_stopped_spare_is_left_and_the_next_one_asked(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = FakeClock().install(monkeypatch, forking)
    bench.fork("w0")
    (stopped := bench.spare()).suspend()
    bench.zygote.spare_silent_s = 1.0
    asked = bench.ask("w1")
    handed_over(bench)
    clock.advance(1.0)
    with pytest.raises(ForkFailed) as failed:
        asked.poll()
    assert failed.value.may_be_repeated
    bench.fork("w1")
    stopped.resume()
    wait_until(lambda: stopped.status() == psutil.STATUS_ZOMBIE)
    assert not bench.zygote.has_failed, "it has forked another since"


def test_a_zygote_of_which_one_spare_after_the_other_is_silent_is_killed(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = FakeClock().install(monkeypatch, forking)
    bench.fork("w0")
    for may_be_repeated in (True, False):
        assert bench.zygote.reap() is None
        bench.spare().suspend()
        asked = bench.ask("w1")
        handed_over(bench)
        clock.advance(SILENT_S)
        with pytest.raises(ForkFailed) as failed:
            asked.poll()
        assert failed.value.may_be_repeated == may_be_repeated
    assert wait_until(bench.zygote.reap) == -signal.SIGKILL


def handed_over(bench: Bench) -> None:
    def is_so() -> bool:
        bench.zygote._listen()
        return bench.zygote.handed == bench.zygote.asked

    wait_until(is_so)


def look_for(bench: Bench, clock: FakeClock, seconds: float) -> None:
    """As a supervisor does."""
    for _ in range(round(seconds / 0.1)):
        bench.zygote.look(clock())
        clock.advance(0.1)


def test_a_zygote_that_somebody_stopped_is_killed_and_sooner_where_it_is_waited_for(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.fork("w0")
    clock = FakeClock().install(monkeypatch, forking)
    bench.process.suspend()
    wait_until(lambda: bench.process.status() == psutil.STATUS_STOPPED)
    look_for(bench, clock, STOPPED_S)
    bench.process.resume()
    wait_until(lambda: bench.process.status() != psutil.STATUS_STOPPED)
    look_for(bench, clock, 0.1)
    bench.process.suspend()
    wait_until(lambda: bench.process.status() == psutil.STATUS_STOPPED)
    look_for(bench, clock, WAITED_FOR_S + 0.1)
    assert bench.zygote.reap() is None, "it was stopped for a moment twice"
    asked = bench.ask("w1")
    look_for(bench, clock, 0.1)
    assert wait_until(bench.zygote.reap) == -signal.SIGKILL
    with pytest.raises(ForkFailed) as failed:
        asked.poll()
    assert failed.value.may_be_repeated, "another will have loaded as soon as whoever asked would have"


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


def test_a_fork_that_has_its_go_and_does_not_serve_is_killed(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = FakeClock().install(monkeypatch, forking)
    zygotes_end, fork = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as hanging, fork:
        zygotes_end.settimeout(0.0)
        asked = ForkedProcess(bench.zygote, zygotes_end, 1)
        fork.send(json.dumps({"pid": hanging.pid}).encode())
        assert asked.poll() is None
        clock.advance(UNSERVED_S)
        assert asked.poll() is None
        clock.advance(0.1)
        asked.poll()
        assert asked.wait() == -signal.SIGKILL
        assert not asked.has_served


def test_a_zygote_that_loads_is_given_longer(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    bench.process.suspend()
    clock = FakeClock(bench.zygote.started).install(monkeypatch, forking)
    asked = bench.ask()
    clock.advance(SILENT_S * 10)
    assert asked.poll() is None
    clock.advance(forking.LOAD_S)
    assert "does not answer" in bench.failure(asked)


def test_requests_of_a_whole_machine_do_not_make_the_last_overdue(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = FakeClock().install(monkeypatch, forking)
    asked = [bench.ask(f"w{number}") for number in range(4)]
    for each in asked:
        clock.advance(SILENT_S - 0.1)
        wait_until(lambda each=each: each.poll() or each.pid)
    assert [each.poll() for each in asked] == [None] * 4


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
