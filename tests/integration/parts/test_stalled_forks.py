"""A zygote, a spare or a fork that stands still: who waits for it, and for how long."""

import json
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from ostraka import forking
from ostraka.children import ForkFailed
from ostraka.forking import (
    SILENT_S,
    STOPPED_S,
    UNSERVED_S,
    WAITED_FOR_S,
    ForkedProcess,
)
from tests.clocks import FakeClock
from tests.fake_model import make_fake_model
from tests.integration.parts.zygote_bench import Bench, bench_of
from tests.waiting import wait_until


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    yield from bench_of(make_fake_model(tmp_path / "model"), tmp_path)


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
