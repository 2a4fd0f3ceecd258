"""Stops of the whole server, told by real signals: what was accepted is answered, in the time there is."""

import os
import signal
import socket
from contextlib import ExitStack
from pathlib import Path

import httpx
import psutil
import pytest

from ostraka.run_dirs import sweep
from ostraka.stopping import SECOND_SIGNAL_S
from ostraka.supervisor import SERVING_POLL_S
from tests.cluster import STOP_S, Cluster, running, wait_for
from tests.faults.stalls import stall_one
from tests.waiting import let_pass

pytestmark = pytest.mark.faults


def test_nothing_outlives_a_killed_supervisor_and_its_run_directory_is_swept(fake_model, tmp_path: Path) -> None:
    (place := tmp_path / "run").mkdir()
    with running(fake_model.path, "--workers=2", env={"XDG_RUNTIME_DIR": str(place)}) as cluster:
        sweep(place)
        (left,) = place.iterdir()
        assert cluster.decide("x").status_code == 200, "who lives is left alone"
        cluster.remember_children()
        cluster.process.kill()
        cluster.check_no_orphans()
    assert left.exists()
    sweep(place)
    assert not left.exists()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_stop_answers_what_is_in_flight(cluster: Cluster, release: Path, number: signal.Signals) -> None:
    asked, _ = stall_one(cluster)
    cluster.process.send_signal(number)
    cluster.wait_event("draining", process="gateway")
    release.touch()
    assert asked.response().status_code == 200
    assert cluster.process.wait(STOP_S) == 0
    cluster.check_no_orphans()


def test_a_worker_killed_in_a_drain_is_replaced_and_its_request_answered(fake_model, release: Path) -> None:
    with running(fake_model.path, "--workers=1") as cluster:
        asked, worker = stall_one(cluster)
        cluster.process.send_signal(signal.SIGTERM)
        cluster.wait_event("draining", process="gateway")
        os.kill(worker["pid"], signal.SIGKILL)
        release.touch()
        assert asked.response().status_code == 200
        assert cluster.process.wait(STOP_S) == 0
        cluster.check_no_orphans()


def test_a_stopped_and_continued_supervisor_serves_on_and_stops_in_order(cluster: Cluster) -> None:
    """Stopped for longer than its longest wait, so that it wakes with its timeout expired."""
    supervisor = psutil.Process(cluster.process.pid)
    cluster.process.send_signal(signal.SIGSTOP)
    wait_for(lambda: supervisor.status() == psutil.STATUS_STOPPED, "it is stopped")
    let_pass(SERVING_POLL_S)
    cluster.process.send_signal(signal.SIGCONT)
    wait_for(lambda: supervisor.status() != psutil.STATUS_STOPPED, "it runs on")
    worker = cluster.worker("w0")
    assert worker
    os.kill(worker["pid"], signal.SIGKILL)
    cluster.wait_worker("is replaced", lambda w: w["pid"] != worker["pid"] and w["state"] == "ready")
    assert cluster.decide("x").status_code == 200
    assert cluster.stop(signal.SIGTERM) == 0


def test_a_second_signal_stops_now(cluster: Cluster) -> None:
    stall_one(cluster)
    for _ in range(2):  # at once, they are one
        cluster.process.send_signal(signal.SIGTERM)
    cluster.wait_event("draining", process="gateway")
    let_pass(SECOND_SIGNAL_S)
    assert cluster.process.poll() is None
    cluster.process.send_signal(signal.SIGTERM)
    assert cluster.process.wait(STOP_S) == 1
    cluster.check_no_orphans()


def test_the_grace_period_is_kept(fake_model) -> None:
    with running(fake_model.path, "--workers=1", "--grace-s=0.5") as cluster:
        cluster.ask_in_background("<stall>")
        cluster.wait_worker("runs it", lambda w: w["running_tokens"] > 0)
        assert cluster.stop() == 1
        cluster.wait_event("grace_period_over")


def test_sigterm_is_told_to_load_balancers_first_and_then_nobody_is_let_in(fake_model, release: Path) -> None:
    """A request that has not arrived in the end was promised nothing: that is an orderly end too."""
    flags = ("--workers=1", "--not-ready-s=2", "--grace-s=5")
    clients = (
        httpx.Client(headers={"connection": "close"}),
        httpx.Client(),
        httpx.Client(),
    )  # each takes a while to make
    with running(fake_model.path, *flags) as cluster, ExitStack() as stack, socket.socket() as half_sent:
        prober, resting, another = map(stack.enter_context, clients)
        asked, _ = stall_one(cluster)
        assert "connection" not in resting.get(f"{cluster.url}/livez").headers
        cluster.process.send_signal(signal.SIGTERM)
        wait_for(lambda: prober.get(f"{cluster.url}/readyz").status_code == 503, "it is not ready")
        for client in (resting, another):  # an open connection and a new one
            answer = client.get(f"{cluster.url}/livez")
            assert (answer.status_code, answer.headers["connection"]) == (200, "close")
        assert not cluster.event("draining")
        host, _, port = cluster.url.removeprefix("http://").rpartition(":")
        half_sent.connect((host, int(port)))
        half_sent.sendall(b"POST /v1/systemone HTTP/1.1\r\nhost: x\r\ncontent-length: 9\r\n\r\nhalf")
        cluster.wait_event("draining", process="gateway")
        release.touch()
        assert asked.response().status_code == 200
        with pytest.raises(httpx.ConnectError):
            httpx.get(f"{cluster.url}/readyz", timeout=5)
        assert cluster.process.wait(STOP_S) == 0
        assert half_sent.recv(1 << 16).startswith(b"HTTP/1.1 503 ")


def test_the_end_of_the_grace_period_is_told_in_json(fake_model) -> None:
    with running(fake_model.path, "--workers=1", "--grace-s=2") as cluster:
        asked = cluster.ask_in_background("<stall>")
        cluster.wait_worker("runs it", lambda w: w["running_tokens"] > 0)
        cluster.process.send_signal(signal.SIGTERM)
        response = asked.response()
        assert (response.status_code, response.json()["detail"]["error_type"]) == (503, "draining")
        assert response.headers["x-typesafe-request-id"]
        assert cluster.process.wait(STOP_S) == 1
        assert not [line for line in cluster.lines if "Traceback" in line]
