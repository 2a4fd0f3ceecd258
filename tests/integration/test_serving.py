"""What a client sees of a healthy cluster."""

import json
import os
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from ostraka_worker.__main__ import NICENESS
from tests.cluster import Cluster, running, wait_for

QUESTIONS = {
    "billing": {"type": "noul", "instructions": "Is this about billing?"},
    "team": {"type": "choice", "instructions": "Who?", "criteria": {"billing": None, "shipping": None, "tech": None}},
    "anger": {"type": "score", "instructions": "How upset?", "criteria": ["calm", "annoyed", "furious"]},
}


def test_answers_all_three_kinds(cluster: Cluster) -> None:
    response = cluster.decide("I was charged twice.", QUESTIONS)
    assert response.status_code == 200
    body = response.json()
    assert list(body) == ["model", "answers", "usage"]
    assert [answer["type"] for answer in body["answers"].values()] == ["noul", "choice", "score"]
    assert list(body["answers"]) == ["billing", "team", "anger"]
    assert body["model"] == "fake-model"
    assert response.headers["x-typesafe-request-id"].startswith("req_")
    stages = [part.split(";")[0] for part in response.headers["server-timing"].split(", ")]
    assert stages == ["parse", "validate", "tokenize", "queue", "inference", "respond", "total"]


def test_decide_gives_the_servers_bytes(cluster: Cluster, fake_model, tmp_path: Path) -> None:
    body = {"model": "jev-latest", "state": {"text": "Ünïcode ✓"}, "questions": QUESTIONS}
    request = tmp_path / "request.json"
    request.write_text(json.dumps(body), encoding="utf-8")
    command = [sys.executable, "-m", "ostraka", "decide", str(request), f"--model={fake_model.path}"]
    decided = subprocess.run(command, capture_output=True, check=True)
    served = cluster.client.post("/v1/systemone", content=request.read_bytes())
    assert decided.stdout == served.content
    output = tmp_path / "answers" / "one.json"
    subprocess.run([*command, f"--output={output}"], check=True)
    assert output.read_bytes() == served.content
    again = subprocess.run([*command, f"--output={output}"], capture_output=True, text=True, check=False)
    assert (again.returncode, output.read_bytes()) == (1, served.content)
    assert again.stderr == f"ostraka: {output} exists: answers are never written over a file\n"


def test_decide_refuses_as_the_server_does(cluster: Cluster, fake_model, tmp_path: Path) -> None:
    request = tmp_path / "request.json"
    request.write_text('{"state": "x", "questions": {}}', encoding="utf-8")
    command = [sys.executable, "-m", "ostraka", "decide", str(request), f"--model={fake_model.path}"]
    decided = subprocess.run(command, capture_output=True, text=True, check=False)
    served = cluster.client.post("/v1/systemone", content=request.read_bytes())
    assert (decided.returncode, decided.stdout, served.status_code) == (1, "", 422)
    assert decided.stderr == f"ostraka: {served.text}\n"


def test_answers_do_not_depend_on_mates(cluster: Cluster, release: Path) -> None:
    """Requests piled up behind a stalled one are read together; each answers as it does alone."""
    alone = {state: cluster.decide(state).content for state in map(str, range(12))}
    stalled = [cluster.ask_in_background("<stall> 1"), cluster.ask_in_background("<stall> 2")]
    wait_for(lambda: all(w["running_tokens"] for w in cluster.health()["workers"]), "both workers stall")
    waiting = {state: cluster.ask_in_background(state) for state in alone}
    wait_for(lambda: cluster.health()["in_flight_requests"] == len(alone) + 2, "all requests are in")
    release.touch()
    assert {state: asked.response().content for state, asked in waiting.items()} == alone
    assert all(asked.response().status_code == 200 for asked in stalled)
    wait_for(lambda: cluster.health()["engine"]["batched_requests"] > 1, "some were read together")


@pytest.mark.parametrize(
    ("method", "path", "status", "error_type"),
    [("GET", "/v1/v1/systemone", 404, "not_found"), ("GET", "/v1/systemone", 405, "method_not_allowed")],
)
def test_unknown_paths_and_methods_are_json(cluster: Cluster, method, path, status, error_type) -> None:
    response = cluster.client.request(method, path)
    assert (response.status_code, response.json()["detail"]["error_type"]) == (status, error_type)
    assert response.headers["x-typesafe-request-id"]


def test_bad_requests_are_told_what_to_do(cluster: Cluster) -> None:
    cases = [b"{", b"", b"[]", b'{"state": 1, "questions": {"q": {"type": "noul"}}}', b"\xff", b"null"]
    for body in cases:
        response = cluster.client.post("/v1/systemone", content=body)
        assert response.status_code == 422, body
        assert response.json()["detail"][0]["loc"][0] == "body"
    unknown = cluster.client.post(
        "/v1/systemone", json={"model": "gpt", "state": "x", "questions": {"q": {"type": "noul"}}}
    )
    assert (unknown.status_code, unknown.json()["detail"]["error_type"]) == (400, "api_usage_error")
    long = cluster.decide("x" * 9000)
    assert (long.status_code, long.json()["detail"][0]["type"]) == (422, "prompt_too_long")
    deadline = cluster.decide("x", **{"x-deadline-ms": "soon"})
    assert (deadline.status_code, deadline.json()["detail"][0]["loc"]) == (422, ["header", "x-deadline-ms"])


def test_a_body_over_the_limit_is_refused_before_it_is_read(cluster: Cluster) -> None:
    response = cluster.client.post("/v1/systemone", content=b" " * (17 * 1024 * 1024))
    assert (response.status_code, response.json()["detail"]["error_type"]) == (413, "body_too_large")

    def chunks():
        for _ in range(17):
            yield b" " * (1024 * 1024)

    response = cluster.client.post("/v1/systemone", content=chunks())
    assert response.status_code == 413


def test_pages(cluster: Cluster, fake_model) -> None:
    assert cluster.client.get("/livez").json() == {"status": "alive"}
    assert cluster.client.get("/readyz").json() == {"status": "ready", "ready_workers": 2}
    assert [m["name"] for m in cluster.client.get("/v1/models").json()["models"]] == ["fake-model", "jev-latest"]
    health = cluster.health()
    assert (health["status"], health["model"], health["fingerprint"]) == ("ready", "fake-model", fake_model.fingerprint)
    assert [w["worker"] for w in health["workers"]] == ["w0", "w1"]
    assert "/v1/systemone" in cluster.client.get("/openapi.json").json()["paths"]


@pytest.mark.parametrize(
    ("flags", "hits", "kept", "most"),
    [
        ([], 2, 2, (16, 8192)),
        (["--state-cache=1"], 1, 1, (1, 8192)),
        (["--state-cache-tokens=100"], 1, 1, (16, 100)),
        (["--state-cache=0"], 0, 0, (0, 8192)),
        (["--state-cache-tokens=0"], 0, 0, (0, 0)),
    ],
)
def test_states_are_kept_as_many_as_asked_for(fake_model, flags, hits, kept, most) -> None:
    """Two states of some 70 tokens in turn: with room for one, only what is asked again at once is found."""
    first, second = "The first state, of forty characters or so.", "Another state, just as long as the one before."
    with running(fake_model.path, "--workers=1", *flags) as cluster:
        answers = {state: cluster.decide(state).content for state in (first, second)}
        for state in (second, first):
            assert cluster.decide(state).content == answers[state]
        asked = 4 if most[0] and most[1] else 0

        def counted():
            counts = cluster.health()["engine"]["state_snapshots"]
            return counts if counts["hits"] + counts["misses"] == asked and counts["max"] == most[0] else None

        counts = wait_for(counted, "a beat tells of all requests")
    assert (counts["hits"], counts["kept"], counts["max"], counts["max_tokens"]) == (hits, kept, *most)
    assert list(counts) == ["kept", "max", "tokens", "max_tokens", "hits", "misses", "reused_tokens", "bytes"]
    assert (counts["reused_tokens"] > 0) is (hits > 0)
    assert (counts["bytes"] > 0) is (kept > 0)


def test_metrics_count_what_happened(cluster: Cluster) -> None:
    def counts() -> list[float]:
        return [
            cluster.metric("ostraka_requests_total", route="/v1/systemone", status="200"),
            cluster.metric("ostraka_requests_total", route="other", status="404"),
            cluster.metric("ostraka_request_seconds_count", stage="inference"),
        ]

    before = counts()
    for _ in range(3):
        cluster.decide("x")
    cluster.client.get("/nowhere")
    assert [after - earlier for after, earlier in zip(counts(), before, strict=True)] == [3, 1, 3]
    assert cluster.metric("ostraka_worker_state", worker="w0", state="ready") == 1
    assert cluster.metric("ostraka_in_flight_tokens", worker="w0") == 0
    assert cluster.metric("ostraka_queued_tokens") == 0


def test_workers_are_pinned_and_have_one_busy_thread(cluster: Cluster) -> None:
    """Each on a core of its own, where there are two; the worker's other threads are ZeroMQ's two, which only wait."""
    cores = [tuple(psutil.Process(w["pid"]).cpu_affinity()) for w in cluster.health()["workers"]]
    gateway = psutil.Process(cluster.health()["gateways"][0]["pid"])
    for worker in cluster.health()["workers"]:
        assert psutil.Process(worker["pid"]).nice() == min(19, gateway.nice() + NICENESS), "the gateway goes first"
    assert cores == [tuple(w["cores"]) for w in cluster.health()["workers"]]
    if len(os.sched_getaffinity(0)) >= 2:
        assert all(len(each) == 1 for each in cores)
        assert len(set(cores)) == 2
    for worker in cluster.health()["workers"]:
        assert psutil.Process(worker["pid"]).num_threads() <= 3


def test_only_the_listening_socket_is_on_the_network(cluster: Cluster) -> None:
    port = int(cluster.url.rpartition(":")[2])
    for process in psutil.Process(cluster.process.pid).children(recursive=True):
        for connection in process.net_connections("inet"):
            assert connection.laddr.port == port
            assert connection.laddr.ip == "127.0.0.1"
    run_dir = next(e for e in cluster.process.args if e.startswith("--run-dir=")).partition("=")[2]
    assert Path(run_dir).stat().st_mode & 0o777 == 0o700


def test_answers_are_kept_where_told_to(fake_model) -> None:
    with running(fake_model.path, "--workers=1", "--answer-cache-bytes=100000") as cluster:
        bodies = {cluster.decide("the same").content for _ in range(3)}
        assert len(bodies) == 1
        assert cluster.metric("ostraka_cached_answers_total") == 2
