"""Each failure made to happen, with real signals to real processes; whatever was accepted is answered."""

import os
import signal
import socket
from pathlib import Path

import httpx
import msgpack
import psutil
import pytest
import zmq

from ostraka_shared.codec import decode, encode
from ostraka_shared.messages import PROTOCOL_VERSION, Beat, Hello, Refused, Result
from tests.cluster import STOP_S, Asked, Cluster, running, wait_for
from tests.fake_model import make_fake_model
from tests.faults.stalls import asking, stall_one
from tests.waiting import DEADLINE_S, let_pass

pytestmark = pytest.mark.faults

PAUSE_S = 3.0
"""Longer than any patience."""


def test_a_killed_workers_request_is_answered_by_another_and_three_kills_are_not_its_fault(
    cluster: Cluster, release: Path
) -> None:
    asked, worker = stall_one(cluster, **{"x-deadline-ms": "60000"})
    name, other, pids = worker["worker"], "w1" if worker["worker"] == "w0" else "w0", []
    for runs_it, then in ((name, other), (other, name), (name, other)):
        pids.append(cluster.wait_worker("runs it", lambda w: w["running_tokens"] > 0, runs_it)["pid"])
        cluster.wait_worker("is ready", lambda w: w["state"] == "ready", then)
        os.kill(pids[-1], signal.SIGKILL)
    cluster.wait_worker("has the request now", lambda w: w["running_tokens"] > 0, other)
    release.touch()
    assert asked.response().status_code == 200
    back = cluster.wait_worker("is back", lambda w: w["state"] == "ready", name)
    assert (back["restarts"], back["pid"] in pids) == (2, False)
    assert cluster.metric("ostraka_redispatched_requests_total", reason="killed") == 3
    assert cluster.metric("ostraka_worker_restarts_total", worker=name) == 2


def test_killing_every_worker_loses_nothing(cluster: Cluster, release: Path) -> None:
    asked = [cluster.ask_in_background(f"<stall> {i}") for i in range(2)]
    wait_for(lambda: all(w["running_tokens"] for w in cluster.health()["workers"]), "both run one")
    queued = [cluster.ask_in_background(f"waits {i}") for i in range(5)]
    wait_for(lambda: cluster.health()["in_flight_requests"] == 7, "all are in")
    for worker in cluster.health()["workers"]:
        os.kill(worker["pid"], signal.SIGKILL)
    release.touch()
    assert [each.response().status_code for each in asked + queued] == [200] * 7


def test_a_stopped_worker_is_given_up_killed_and_replaced(cluster: Cluster, release: Path) -> None:
    asked, worker = stall_one(cluster, **{"x-deadline-ms": "60000"})
    os.kill(worker["pid"], signal.SIGSTOP)
    other = "w1" if worker["worker"] == "w0" else "w0"
    cluster.wait_worker("has the request now", lambda w: w["running_tokens"] > 0, other)
    release.touch()
    assert asked.response().status_code == 200
    cluster.wait_event("worker_lost", worker=worker["worker"], reason="silent")
    cluster.wait_worker("is back", lambda w: w["pid"] != worker["pid"] and w["state"] == "ready", worker["worker"])
    assert not psutil.pid_exists(worker["pid"])


def test_an_idle_stopped_worker_gets_no_work(cluster: Cluster) -> None:
    pid = cluster.worker("w0")["pid"]
    os.kill(pid, signal.SIGSTOP)
    wait_for(lambda: (w := cluster.worker("w0")) is None or w["state"] == "suspect", "w0 is suspect")
    # Two: ties go to the worker served longest ago, so one of them would be w0's
    assert [cluster.decide("x").status_code for _ in range(2)] == [200, 200]
    assert "ostraka_redispatched_requests_total{" not in cluster.client.get("/metrics").text


def test_a_request_that_kills_two_workers_is_not_tried_again(cluster: Cluster) -> None:
    poisoned = cluster.decide("<die>")
    detail = poisoned.json()["detail"]
    assert (poisoned.status_code, detail["error_type"]) == (500, "poisoned_request")
    assert poisoned.headers["x-typesafe-request-id"] in detail["message"]
    assert cluster.decide("fine").status_code == 200
    for name in ("w0", "w1"):
        cluster.wait_worker("is back", lambda w: w["state"] == "ready", name)
    assert sum(w["restarts"] for w in cluster.health()["workers"]) == 2
    assert cluster.metric("ostraka_lost_workers_total", reason="exit") == 2


def test_a_call_that_fails_costs_its_own_request_only(cluster: Cluster, release: Path) -> None:
    stalled = [cluster.ask_in_background(f"<stall> {i}") for i in range(2)]
    wait_for(lambda: all(w["running_tokens"] for w in cluster.health()["workers"]), "both stall")
    mates = [cluster.ask_in_background(text) for text in ("<fail>", "one", "two", "<nan>", "three")]
    wait_for(lambda: cluster.health()["in_flight_requests"] == 7, "all are in")
    release.touch()
    assert [mate.response().status_code for mate in mates] == [500, 200, 200, 500, 200]
    assert mates[0].response().json()["detail"]["error_type"] == "engine_failed"
    assert [each.response().status_code for each in stalled] == [200, 200]


def test_the_deadline_ends_a_request_in_time(cluster: Cluster, release: Path) -> None:
    late = cluster.decide("<stall>", **{"x-deadline-ms": "200"})
    assert (late.status_code, late.json()["detail"]["error_type"]) == (504, "deadline_exceeded")
    assert int(late.headers["retry-after-ms"]) > 0
    release.touch()
    wait_for(lambda: cluster.metric("ostraka_late_results_total") == 1, "the late result is counted")


def test_a_full_queue_refuses_at_once(fake_model, release: Path) -> None:
    with running(fake_model.path, "--workers=1", "--batch-tokens=64", "--queue-tokens=200") as cluster:
        stalled = cluster.ask_in_background("<stall>")
        cluster.wait_worker("runs it", lambda w: w["running_tokens"] > 0)
        queued = []
        while (refused := cluster.decide("x" * 60, **{"x-deadline-ms": "50"})).status_code == 504:
            queued.append(cluster.ask_in_background(f"{len(queued)}" * 60))
            wait_for(lambda: cluster.health()["in_flight_requests"] == len(queued) + 1, "it is in")
        assert (refused.status_code, refused.json()["detail"]["error_type"]) == (529, "overloaded_error")
        assert int(refused.headers["retry-after-ms"]) > 0
        assert int(refused.headers["retry-after"]) > 0
        release.touch()
        assert {each.response().status_code for each in [stalled, *queued]} == {200}


def test_a_killed_gateway_comes_back_and_its_workers_find_it(cluster: Cluster) -> None:
    workers = {w["worker"]: w["pid"] for w in cluster.health()["workers"]}
    killed = cluster.gateways()["gateway"]
    killed.suspend()
    host, _, port = cluster.url.removeprefix("http://").rpartition(":")
    with socket.create_connection((host, int(port)), timeout=30) as early:
        early.sendall(b"GET /livez HTTP/1.1\r\nhost: x\r\n\r\n")
        killed.kill()
        assert early.recv(1 << 16).startswith(b"HTTP/1.1 200 "), "what nobody has accepted outlives the only gateway"
    cluster.wait_event("child_exited", child="gateway", code="SIGKILL")

    def answers() -> bool:
        try:
            return httpx.get(f"{cluster.url}/readyz").json() == {"status": "ready", "ready_workers": 2}
        except httpx.HTTPError:
            return False

    wait_for(answers, "the gateway is back with both workers")
    assert {w["worker"]: w["pid"] for w in cluster.health()["workers"]} == workers
    assert cluster.decide("x").status_code == 200


def test_strangers_on_the_socket_are_dropped_and_counted(cluster: Cluster, tmp_path: Path) -> None:
    with zmq.Context() as context, context.socket(zmq.DEALER) as stranger:
        stranger.linger = 0
        stranger.connect(f"ipc://{tmp_path / 'run' / 'workers.sock'}")
        hello = Hello("another", "w9", 1, cluster.health()["fingerprint"], "elsewhere", 1, (0,))
        for frame in (b"garbage", b"\x80", encode(hello).replace(b"HELLO", b"HELLA"), encode(Beat(0, 0, 0, 0, 0, 0))):
            stranger.send(frame)
        stranger.send_multipart([b"two", b"frames"])
        stranger.send(encode(Result("req_x", 1, (0.5,), 0.0, 0.0)))
        stranger.send(encode(hello))
        replies = [decode(stranger.recv()) for _ in range(3) if stranger.poll(10_000)]
        stranger.send(encode(hello, PROTOCOL_VERSION - 1))  # as a worker of the release before
        assert stranger.poll(10_000)
        told = msgpack.unpackb(stranger.recv())
    assert (told["v"], told["kind"], told["code"]) == (PROTOCOL_VERSION - 1, "REFUSED", "wrong_version")
    assert "run the same version" in told["message"]
    assert [type(r) for r in replies] == [Refused] * 3
    assert [r.code for r in replies] == ["unknown_worker", "unknown_worker", "wrong_cluster"]
    assert cluster.metric("ostraka_dropped_frames_total", reason="garbage") == 2
    assert cluster.metric("ostraka_dropped_frames_total", reason="wrong_version") == 2
    assert cluster.metric("ostraka_dropped_frames_total", reason="unknown_kind") == 1
    assert cluster.metric("ostraka_dropped_frames_total", reason="wrong_peer") == 2
    assert [w["worker"] for w in cluster.health()["workers"]] == ["w0", "w1"]
    assert cluster.decide("x").status_code == 200


def serve_until_it_ends(*arguments: str) -> tuple[int, list[str]]:
    cluster = Cluster(Path("none"), *arguments)
    try:
        code = cluster.process.wait(STOP_S)
        cluster._reader.join(10)
        return code, cluster.lines
    finally:
        cluster.close()


def test_a_taken_port_is_one_clear_line(cluster: Cluster, fake_model) -> None:
    port = cluster.url.rpartition(":")[2]
    code, lines = serve_until_it_ends(f"--model={fake_model.path}", f"--port={port}")
    assert code == 1
    assert len(lines) == 1
    assert f"cannot listen on http://127.0.0.1:{port}: the port is in use" in lines[0]


def test_a_missing_or_altered_model_is_one_clear_line(fake_model, tmp_path: Path) -> None:
    code, lines = serve_until_it_ends(f"--model={tmp_path / 'nowhere'}")
    assert (code, lines) == (
        1,
        [f"ostraka: --model: no model folder at {tmp_path / 'nowhere'}: build one with `ostraka model build`\n"],
    )
    with fake_model.tokenizer.open("ab") as file:
        file.write(b" ")
    code, lines = serve_until_it_ends(f"--model={fake_model.path}")
    assert code == 1
    assert lines[-1].startswith(f"ostraka: {fake_model.tokenizer} was altered since it was built")


def test_a_model_that_cannot_load_ends_the_server(tmp_path: Path) -> None:
    broken = make_fake_model(tmp_path / "broken", fail_to_load="no such kernel")
    code, lines = serve_until_it_ends(f"--model={broken.path}", "--workers=1")
    assert code == 1
    assert any("no such kernel" in line for line in lines)
    assert any("cannot_keep_up" in line for line in lines)


def test_a_gateway_that_dies_again_and_again_ends_the_server(fake_model, tmp_path: Path) -> None:
    run_dir = tmp_path / "run"
    (run_dir / "figures.sock").mkdir(parents=True)  # where it must bind a socket
    run_dir.chmod(0o700)
    code, lines = serve_until_it_ends(f"--model={fake_model.path}", "--workers=1", f"--run-dir={run_dir}")
    assert code == 1
    assert any("cannot_serve" in line and "figures.sock" in line for line in lines)
    assert any("cannot_keep_up" in line and "gateway" in line for line in lines)


def test_a_client_that_leaves_takes_its_queued_request_along(fake_model, release: Path) -> None:
    with running(fake_model.path, "--workers=1", "--batch-tokens=64") as cluster:
        stalled = cluster.ask_in_background("<stall>")
        cluster.wait_worker("runs it", lambda w: w["running_tokens"] > 0)
        body = {"model": "jev-latest", "state": "x" * 200, "questions": {"q": {"type": "noul"}}}
        with asking(cluster, body):
            wait_for(lambda: cluster.health()["in_flight_requests"] == 2, "it is in")
        wait_for(lambda: cluster.health()["in_flight_requests"] == 1, "only the stalled one is left")
        wait_for(lambda: cluster.health()["queued_tokens"] == 0, "nothing is in the queue")
        release.touch()
        assert stalled.response().status_code == 200
        assert cluster.metric("ostraka_requests_total", route="/v1/systemone", status="499") == 1


def test_a_cluster_that_was_paused_as_a_whole_loses_no_worker(cluster: Cluster) -> None:
    """As a suspended machine or a paused container: whoever moves first finds the others silent."""
    cluster.remember_children()
    processes = [psutil.Process(cluster.process.pid), *cluster._children]
    for process in processes:
        process.suspend()
    let_pass(PAUSE_S)
    cluster.gateways()["gateway"].resume()
    for process in processes:
        process.resume()
    assert cluster.decide("x").status_code == 200
    assert not cluster.event("worker_lost")


def test_signals_that_mean_nothing_end_nobody(cluster: Cluster) -> None:
    """SIGHUP to the supervisor is a stop, as of a terminal that is closed."""
    supervisor = psutil.Process(cluster.process.pid)
    for process in (supervisor, *supervisor.children()):  # gateway, zygotes, their spares, workers
        for number in (signal.SIGUSR1, signal.SIGUSR2, *([signal.SIGHUP] if process != supervisor else [])):
            process.send_signal(number)
    for name in ("supervisor", "gateway", "gateway zygote", "zygote", "worker w0", "worker w1"):
        cluster.wait_event("signal_ignored", process=name, signal="SIGUSR2")
    assert not cluster.event("child_exited")
    assert cluster.decide("x").status_code == 200
    assert cluster.stop(signal.SIGHUP) == 0


def test_a_worker_that_loads_altered_files_is_not_let_in(fake_model) -> None:
    with running(fake_model.path, "--workers=2", "--worker-start=load") as cluster:
        with fake_model.tokenizer.open("ab") as file:
            file.write(b" ")
        os.kill(cluster.worker("w0")["pid"], signal.SIGKILL)
        cluster.wait_event("cannot_serve", process="worker w0", error="ModelDamaged")
        assert cluster.decide("x").status_code == 200
        assert cluster.worker("w0") is None or cluster.worker("w0")["state"] == "starting"


def many(count: int) -> dict[str, dict[str, str]]:
    return {
        f"q{i}": {"type": "noul", "instructions": f"{i}: is it the number {i} that this is about?"}
        for i in range(count)
    }


def test_a_request_split_over_two_workers_survives_the_loss_of_one(tmp_path: Path, release: Path) -> None:
    slow = make_fake_model(tmp_path / "slow", ms_per_token=0.3, stall_until=str(release))
    with running(slow.path, "--workers=2") as cluster:
        cluster.decide("a parcel", many(3))  # how fast a worker reads is known from now on
        asked = Asked(lambda: cluster.decide("<stall> a parcel", many(80)))
        worker = wait_for(
            lambda: (
                cluster.health()["workers"][0]
                if all(w["running_tokens"] for w in cluster.health()["workers"])
                else None
            ),
            "both read it",
        )
        os.kill(worker["pid"], signal.SIGKILL)
        cluster.wait_event("worker_lost", worker=worker["worker"], reason="killed")
        release.touch()
        response = asked.response()
        assert response.status_code == 200
        answers = response.json()["answers"]
        assert len(answers) == 80
        expected = cluster.decide("<stall> a parcel", many(3)).json()["answers"]
        assert {name: answers[name] for name in expected} == expected
        assert cluster.metric("ostraka_redispatched_requests_total", reason="killed") == 1


def test_a_silent_workers_request_is_given_to_another_before_it_is_given_up(cluster: Cluster, release: Path) -> None:
    asked, worker = stall_one(cluster)
    os.kill(worker["pid"], signal.SIGSTOP)
    other = "w1" if worker["worker"] == "w0" else "w0"
    cluster.wait_worker("has the request now", lambda w: w["running_tokens"] > 0, other)
    release.touch()
    assert asked.response().status_code == 200
    assert cluster.metric("ostraka_redispatched_requests_total", reason="suspect") == 1
    assert cluster.metric("ostraka_redispatched_requests_total", reason="silent") == 0


def test_a_long_request_stops_when_its_client_leaves(tmp_path: Path) -> None:
    slow = make_fake_model(tmp_path / "slow", ms_per_token=2.0)
    with running(slow.path, "--workers=1") as cluster:
        body = {"model": "jev-latest", "state": "x", "questions": many(400)}
        with asking(cluster, body, deadline_ms=60_000):
            cluster.wait_worker("reads it", lambda w: w["running_tokens"] > 0)
        assert DEADLINE_S < 45, "the least that reading it all takes"
        cluster.wait_worker("holds nothing", lambda w: w["in_flight_requests"] == 0)
        assert cluster.decide("y").status_code == 200
