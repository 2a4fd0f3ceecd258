"""What a server stands on is deleted under it: it says so, serves on, and mends what it can."""

import os
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

import httpx
import psutil
import pytest

from ostraka.front_desk import SOCKET_NAME
from ostraka.running_cluster import RunningCluster
from tests.cluster import Cluster, running, wait_for
from tests.fake_model import make_fake_model

pytestmark = pytest.mark.faults


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("ground")


@pytest.fixture(scope="module")
def standing(folder: Path) -> Iterator[Cluster]:
    model = make_fake_model(folder / "model")
    with running(model.path, "--workers=2", "--gateways=2", f"--run-dir={folder / 'run'}") as cluster:
        yield cluster
        assert cluster.stop(signal.SIGTERM) == 0


def replaced(cluster: Cluster, name: str) -> int:
    before = cluster.worker(name)
    assert before
    os.kill(before["pid"], signal.SIGKILL)
    is_back = lambda w: w["pid"] != before["pid"] and w["state"] == "ready"  # noqa: E731
    return int(cluster.wait_worker("is back", is_back, name)["pid"])


def is_sound(cluster: Cluster) -> bool:
    health = cluster.health()
    return health["degraded"] == [] and [each.get("ready_workers") for each in health["gateways"]] == [2, 2]


def test_a_deleted_run_directory_is_made_again_and_a_deleted_model_served_on(standing: Cluster, folder: Path) -> None:
    lose_run_dir(standing, folder)
    lose_model(standing, folder)
    lose_what_workers_are_forked_from(standing, folder)


def lose_run_dir(standing: Cluster, folder: Path) -> None:
    wait_for(lambda: is_sound(standing), "all is well")
    before = {w["worker"]: w["pid"] for w in standing.health()["workers"]}
    counted = standing.metric("ostraka_requests_total", route="/v1/systemone", status="200")
    answered = [standing.decide("x").status_code]
    shutil.rmtree(folder / "run")
    standing.wait_event("run_dir_lost")
    while not standing.event("run_dir_restored"):
        answered += [standing.decide("x").status_code]
    assert set(answered) == {200}
    wait_for(lambda: is_sound(standing), "health is what it was")
    assert {w["worker"]: w["pid"] for w in standing.health()["workers"]} == before
    assert not standing.event("worker_lost")
    replaced(standing, "w0")
    wait_for(lambda: is_sound(standing), "the new one is at both gateways")
    wait_for(
        lambda: (
            standing.metric("ostraka_requests_total", route="/v1/systemone", status="200") == counted + len(answered)
        ),
        "counts go on from where they were",
    )
    assert (folder / "run" / SOCKET_NAME).exists(), "a rollout can be asked for"


def lose_model(standing: Cluster, folder: Path) -> None:
    answer = standing.decide("x").json()["answers"]
    (folder / "model").rename(folder / "lost")
    said = standing.wait_event("model_files_changed")
    assert (said["level"], said["is_gone"]) == ("error", True)
    wait_for(lambda: standing.health()["degraded"] == ["model_files_changed"], "health says so")
    assert standing.metric("ostraka_degraded", reason="model_files_changed") == 1
    assert standing.client.get("/readyz").status_code == 200
    for name in ("w0", "w1"):
        assert "ostraka_worker.zygote" in psutil.Process(replaced(standing, name)).cmdline()
    assert standing.decide("x").json()["answers"] == answer
    killed = RunningCluster(standing.url).gateways()["gateway1"]
    os.kill(killed, signal.SIGKILL)
    standing.client.close()  # it may have been that one's
    standing.client = httpx.Client(base_url=standing.url, timeout=60)
    wait_for(lambda: RunningCluster(standing.url).gateways().get("gateway1", killed) != killed, "it is started again")
    wait_for(lambda: [g.get("ready_workers") for g in standing.health()["gateways"]] == [2, 2], "and serves")


def lose_what_workers_are_forked_from(standing: Cluster, folder: Path) -> None:
    """While the model's files are away, so that a worker that is killed then cannot come back either."""
    (zygote,) = standing.named("zygote")
    zygote.kill()
    killed = standing.worker("w0")
    assert killed
    os.kill(killed["pid"], signal.SIGKILL)
    for child in ("zygote 0", "w0"):
        standing.wait_event("cannot_come_back", child=child)
    wait_for(lambda: standing.health()["degraded"] == ["cannot_come_back", "model_files_changed"], "health says so")
    assert standing.decide("x").status_code == 200
    assert [(w["worker"], w["state"]) for w in standing.health()["workers"]] == [("w1", "ready")]
    (folder / "lost").rename(folder / "model")
    standing.wait_worker("is back", lambda w: w["state"] == "ready")
    wait_for(lambda: is_sound(standing), "all is well")
