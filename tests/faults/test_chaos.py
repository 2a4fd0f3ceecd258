"""`ostraka chaos` as a user runs it: each fault does to the process what it says, and what was accepted is answered."""

import itertools
import os
import signal
import socket
import subprocess
import sys
from contextlib import contextmanager

import psutil
import pytest

from ostraka.chaos import cut_links
from ostraka.running_cluster import RunningCluster
from ostraka_shared.errors import ConfigError
from tests.cluster import Asked, Cluster, running, wait_for
from tests.fake_model import make_fake_model
from tests.faults.loads import under_load

pytestmark = pytest.mark.faults


def start_chaos(cluster: Cluster, fault: str, *flags: str) -> "subprocess.Popen[str]":
    command = [sys.executable, "-m", "ostraka", "chaos", fault, f"--server={cluster.url}", *flags]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def end(running: "subprocess.Popen[str]") -> tuple[int, str]:
    with running:
        out, err = running.communicate(timeout=60)
    return running.returncode, out + err


def chaos(cluster: Cluster, fault: str, *flags: str) -> str:
    code, said = end(start_chaos(cluster, fault, *flags))
    assert code == 0, said
    return said


@contextmanager
def injecting(cluster: Cluster, fault: str, *flags: str):
    chaotic = start_chaos(cluster, fault, *flags)
    try:
        yield chaotic
    finally:
        chaotic.kill()
        if not chaotic.stdout.closed:
            end(chaotic)


def test_what_a_broken_worker_held_is_answered(tmp_path) -> None:
    """Under load, so that the worker holds something whenever the command comes to it. A call takes 60 ms."""
    busy = make_fake_model(tmp_path / "busy", ms_per_token=1.0)
    with running(busy.path, "--workers=2") as cluster, under_load(cluster, keeps=True) as load:
        for fault, says in (("cut", "cut off once"), ("kill", "killed"), ("hang", "given up after")):
            pid = cluster.wait_worker("is ready", lambda w: w["state"] == "ready")["pid"]
            assert says in chaos(cluster, fault, "--target=w0")
            load.wait_for(20)
            back = cluster.wait_worker("is back", lambda w: w["state"] == "ready")
            assert (back["pid"] == pid) == (fault == "cut")
        cluster.wait_event("worker_lost", worker="w0", reason="killed")
        hung = cluster.wait_event("worker_lost", worker="w0", reason="silent")
    assert load.errors == []
    assert {status for status, _ in load.answers} == {200}
    assert len(load.answers) == 4, "each client's answer was always the same"
    assert hung["held_requests"] > 0


def test_a_link_that_flaps_loses_nothing(tmp_path) -> None:
    busy = make_fake_model(tmp_path / "busy", ms_per_token=0.05)
    with running(busy.path, "--workers=2") as cluster:
        pids = {w["worker"]: w["pid"] for w in cluster.health()["workers"]}
        asked = []
        with injecting(cluster, "cut", "--target=w0", "--seconds=2") as chaotic:
            while chaotic.poll() is None:
                asked.append(cluster.ask_in_background("x" * 100))
                wait_for(lambda: sum(not each.is_done for each in asked) < 8, "there is room for another")
            assert chaotic.returncode == 0
        assert {each.response().status_code for each in asked} == {200}
        wait_for(lambda: {w["worker"]: w["pid"] for w in cluster.health()["workers"]} == pids, "both are there")


def test_work_that_was_lost_with_its_link_is_sent_again(fake_model) -> None:
    """Half of it is on the way when the link is cut, since a stopped worker reads nothing; nobody is told so."""
    questions = {f"q{number}": {"type": "noul", "instructions": f"{number} " + "x" * 2000} for number in range(300)}
    with running(fake_model.path, "--workers=1") as cluster:
        found = RunningCluster(cluster.url)
        with found.hold("w0", found.workers()["w0"]) as worker:
            worker.send(signal.SIGSTOP)
            asked = Asked(lambda: cluster.decide("x", questions))
            cluster.wait_worker("was sent it", lambda w: w["in_flight_requests"] == 1)
            assert cut_links(worker) == 1
            worker.send(signal.SIGCONT)
            assert asked.response().status_code == 200
            assert found.workers() == {"w0": worker.pid}


def is_stopped(process: psutil.Process) -> bool:
    return process.status() == psutil.STATUS_STOPPED


def test_a_stopped_worker_is_continued(cluster: Cluster) -> None:
    worker = cluster.worker("w0")
    assert worker
    with injecting(cluster, "stop", "--target=w0", "--seconds=0.5"):
        wait_for(lambda: is_stopped(psutil.Process(worker["pid"])), "it is stopped")
        wait_for(lambda: not is_stopped(psutil.Process(worker["pid"])), "it runs again")
    cluster.wait_worker("is ready", lambda w: w["state"] == "ready" and w["pid"] == worker["pid"])


@pytest.mark.parametrize("fault", ["stop", "slow", "hang"])
def test_a_command_that_is_killed_leaves_nothing_stopped(cluster: Cluster, fault: str) -> None:
    """The gateway: nobody would kill it for being silent, and so nothing but the continuing can end it."""
    gateway = psutil.Process(RunningCluster(cluster.url).gateways()["gateway"])
    with injecting(cluster, fault, "--target=gateway", "--seconds=60") as chaotic:
        wait_for(lambda: is_stopped(gateway), "it is stopped")
        chaotic.kill()
    wait_for(lambda: not is_stopped(gateway), "it runs again")
    assert cluster.decide("x").status_code == 200
    assert not is_stopped(gateway)


def test_a_slow_worker_answers_and_is_kept(cluster: Cluster) -> None:
    before = {w["worker"]: w["pid"] for w in cluster.health()["workers"]}
    with injecting(cluster, "slow", "--target=w0", "--seconds=1.5") as chaotic:
        while chaotic.poll() is None:
            assert cluster.decide("x").status_code == 200
    assert {w["worker"]: w["pid"] for w in cluster.health()["workers"]} == before


def test_a_worker_without_memory_ends_and_loses_nothing(tmp_path) -> None:
    """Each new state is kept, which takes memory."""
    busy = make_fake_model(tmp_path / "busy")
    with running(busy.path, "--workers=2", "--state-cache=10000", "--state-cache-tokens=100000000") as cluster:
        before = cluster.worker("w0")
        assert before
        with injecting(cluster, "oom", "--target=w0") as chaotic:
            for number in itertools.count():
                if chaotic.poll() is not None:
                    break
                assert cluster.decide(f"{number} " + "x" * 8000).status_code == 200
            assert "ran out of memory and ended" in end(chaotic)[1]
        cluster.wait_worker("is back", lambda w: w["state"] == "ready" and w["pid"] != before["pid"])


def test_a_killed_gateway_is_replaced(cluster: Cluster) -> None:
    before = RunningCluster(cluster.url).gateways()["gateway"]
    chaos(cluster, "kill", "--target=gateway")
    cluster.wait_event("child_exited", child="gateway", code="SIGKILL")
    assert wait_for(lambda: RunningCluster(cluster.url).gateways().get("gateway"), "another runs") != before


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        (("kill", "--target=w9"), "no w9 here: there are w0, w1, gateway"),
        (("cut", "--target=gateway"), "cut is for workers"),
        (("stop", "--seconds=nan"), "--seconds must be at least 0"),
        (("kill", "--server=https://127.0.0.1:1"), "is not an address like"),
    ],
)
def test_what_cannot_be_is_one_clear_line(cluster: Cluster, flags, says: str) -> None:
    code, said = end(start_chaos(cluster, *flags))
    assert (code, said.count("\n")) == (1, 1)
    assert says in said


def test_a_process_of_another_is_left_alone(cluster: Cluster) -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as bystander:
        for pid in (bystander.pid, os.getpid(), cluster.process.pid):
            with pytest.raises(ConfigError, match="left alone"), RunningCluster(cluster.url).hold("w0", pid):
                raise AssertionError("held")
        assert bystander.poll() is None


def test_a_port_of_another_program_is_no_server() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener, pytest.raises(ConfigError, match="no `ostraka serve`"):
        RunningCluster(f"http://127.0.0.1:{listener.getsockname()[1]}")


def test_a_held_process_is_never_its_pids_next_owner(cluster: Cluster) -> None:
    found = RunningCluster(cluster.url)
    with found.hold("w0", found.workers()["w0"]) as process:
        assert process.send(signal.SIGKILL)
        assert process.ends_within(10)
        cluster.wait_worker("is replaced", lambda w: w["pid"] != process.pid and w["state"] == "ready")
        assert not process.send(signal.SIGKILL)
