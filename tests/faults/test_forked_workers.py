"""The process that workers are forked from dies, stops, or cannot load: the cluster serves on, and shares again."""

import os
import signal
from pathlib import Path

import psutil
import pytest

from ostraka_shared.model_folder import ModelFolder
from ostraka_worker.build.builder import Form, build_source
from ostraka_worker.build.progress import Silent
from tests.cluster import Cluster, running, wait_for
from tests.fake_model import make_fake_model
from tests.unit.worker.build.tiny import write_tiny

pytestmark = pytest.mark.faults

QUESTIONS = {
    "billing": {"type": "noul", "instructions": "Is this about billing?"},
    "team": {"type": "choice", "instructions": "Who?", "criteria": {"billing": None, "shipping": None, "tech": None}},
}


def zygotes(cluster: Cluster) -> list[psutil.Process]:
    return cluster.named("zygote")


def zygote(cluster: Cluster) -> psutil.Process:
    found: psutil.Process = wait_for(lambda: zygotes(cluster), "there is a zygote")[0]
    return found


def kill_worker(cluster: Cluster, name: str = "w0") -> int:
    """And waits for its replacement, whose pid is given."""
    before = cluster.worker(name)
    assert before
    os.kill(before["pid"], signal.SIGKILL)
    after = cluster.wait_worker("is back", lambda w: w["pid"] != before["pid"] and w["state"] == "ready", name)
    pid: int = after["pid"]
    return pid


def is_forked(pid: int) -> bool:
    return "ostraka_worker.zygote" in psutil.Process(pid).cmdline()


def test_workers_are_forked_and_forked_again(cluster: Cluster) -> None:
    assert all(is_forked(worker["pid"]) for worker in cluster.health()["workers"])
    for name in ("w0", "w1", "w0"):
        assert is_forked(kill_worker(cluster, name))
    for name in ("w0", "w1"):
        cluster.wait_event("ready", process=f"worker {name}")
    assert not cluster.event("not_forked")
    assert cluster.decide("x").status_code == 200
    assert cluster.stop() == 0


def test_all_workers_killed_at_once_are_all_forked_again(cluster: Cluster) -> None:
    before = [worker["pid"] for worker in cluster.health()["workers"]]
    for pid in before:
        os.kill(pid, signal.SIGKILL)
    for name in ("w0", "w1"):
        cluster.wait_worker("is back", lambda w: w["pid"] not in before and w["state"] == "ready", name)
    assert not cluster.event("not_forked")


def test_a_killed_zygote_is_replaced_and_its_workers_serve_on(cluster: Cluster) -> None:
    workers = [worker["pid"] for worker in cluster.health()["workers"]]
    first = zygote(cluster)
    first.kill()
    cluster.wait_event("child_exited", child="zygote 0", code="SIGKILL")
    assert cluster.decide("x").status_code == 200
    wait_for(lambda: zygotes(cluster) and zygotes(cluster)[0].pid != first.pid, "there is another")
    assert [worker["pid"] for worker in cluster.health()["workers"]] == workers
    assert is_forked(kill_worker(cluster))
    assert cluster.stop() == 0


def test_a_zygote_killed_with_its_workers_is_back_before_them(cluster: Cluster) -> None:
    before = [worker["pid"] for worker in cluster.health()["workers"]]
    for pid in (zygote(cluster).pid, *before):
        os.kill(pid, signal.SIGKILL)
    for name in ("w0", "w1"):
        cluster.wait_worker("is back", lambda w: w["pid"] not in before and w["state"] == "ready", name)
    assert cluster.decide("x").status_code == 200
    assert cluster.stop() == 0


def test_a_stopped_zygote_is_replaced_and_a_worker_forked_from_the_new_one(cluster: Cluster) -> None:
    stopped = zygote(cluster)
    stopped.suspend()
    assert is_forked(kill_worker(cluster))
    cluster.wait_event("zygote_stopped", child="zygote 0")
    cluster.wait_event("child_exited", child="zygote 0", code="SIGKILL")
    assert not cluster.event("not_forked")
    assert zygotes(cluster)[0] != stopped


def test_a_model_that_must_not_be_forked_is_loaded_by_each_worker(tmp_path: Path) -> None:
    model = make_fake_model(tmp_path / "model", starts_thread=True)
    with running(model.path, "--workers=2") as cluster:
        assert not any(is_forked(worker["pid"]) for worker in cluster.health()["workers"])
        cluster.wait_event("not_forked", child="w1")
        assert not is_forked(kill_worker(cluster))
        assert cluster.stop() == 0


def test_nothing_is_left_of_a_supervisor_killed_while_its_zygotes_and_spares_are_stopped(cluster: Cluster) -> None:
    for name in ("zygote", "gzygote", "spare", "gspare"):
        wait_for(lambda name=name: cluster.named(name), f"there is a {name}")[0].suspend()
    cluster.remember_children()
    cluster.process.kill()
    cluster.check_no_orphans()


def test_forked_workers_answer_in_the_bits_of_those_that_loaded(tmp_path: Path) -> None:
    """The real engine on a small model: cold, kept, and in company."""
    small: ModelFolder = build_source(
        write_tiny(tmp_path / "tiny.gguf"), tmp_path / "model", "tiny", "int8", Form("0", "1"), Silent()
    )
    states = [f"Ticket {number}. " + "late parcel " * number for number in range(1, 25)]
    answers = []
    for start in ("fork", "load"):
        with running(small.path, "--workers=2", f"--worker-start={start}") as cluster:
            assert {is_forked(worker["pid"]) for worker in cluster.health()["workers"]} == {start == "fork"}
            assert len(zygotes(cluster)) == (start == "fork")
            asked = [cluster.decide(state, QUESTIONS).content for state in states * 2]
            assert asked[: len(states)] == asked[len(states) :]
            answers.append(asked)
    assert answers[0] == answers[1]
