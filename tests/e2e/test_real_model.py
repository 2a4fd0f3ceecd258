"""The real model behind the real command, asked by real clients."""

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
import threading
from pathlib import Path

import psutil
import pytest
from typesafe_sdk import AsyncTypeSafeClient, Choice, Noul, Score, TypeSafeClient

from ostraka_shared.model_folder import ModelFolder
from tests.cluster import Cluster, running, wait_for

pytestmark = pytest.mark.e2e

README = Path(__file__).parents[2] / "README.md"
LOAD_THREADS = 6
LOAD_REQUESTS_EACH = 8


def readme_request() -> bytes:
    """The body that the README's curl sends."""
    found = re.search(r"curl [^\n]*/v1/systemone.*?-d '(\{.*?\})'\n", README.read_text(encoding="utf-8"), re.DOTALL)
    assert found
    return found.group(1).encode()


def test_the_readmes_curl_gives_the_readmes_answer(real_cluster: Cluster) -> None:
    response = real_cluster.client.post("/v1/systemone", content=readme_request())
    assert response.status_code == 200
    shown = re.search(r'^(\{"model":.*\})$', README.read_text(encoding="utf-8"), re.MULTILINE)
    assert shown, "the README shows the answer"
    promised, answer = json.loads(shown.group(1)), response.json()
    assert answer["usage"] == promised["usage"]
    assert list(answer["answers"]) == list(promised["answers"])
    # Another processor rounds differently, and int8 makes more of it.
    assert answer["answers"]["billing"]["noul"] == pytest.approx(promised["answers"]["billing"]["noul"], abs=0.15)


def test_decide_gives_the_servers_bytes(real_cluster: Cluster, embedded_model: ModelFolder, tmp_path: Path) -> None:
    request = tmp_path / "request.json"
    request.write_bytes(readme_request())
    command = [sys.executable, "-m", "ostraka", "decide", str(request), f"--model={embedded_model.path}"]
    decided = subprocess.run(command, capture_output=True, check=True)
    assert decided.stdout == real_cluster.client.post("/v1/systemone", content=readme_request()).content


def ask_sdk(client: TypeSafeClient, state: str):
    return client.system_one(
        state=state,
        questions={
            "billing": Noul(instructions="Is this a billing problem?"),
            "team": Choice(instructions="Who handles it?", criteria={"billing": None, "shipping": None}),
            "anger": Score(instructions="How upset is the customer?", criteria=["calm", "annoyed", "furious"]),
        },
    )


@pytest.fixture
def sdk_environment(real_cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TYPESAFE_BASE_URL", real_cluster.url)
    monkeypatch.setenv("TYPESAFE_API_KEY", "any-word")


@pytest.mark.usefixtures("sdk_environment")
def test_the_official_sdk_parses_all_three_answers() -> None:
    with TypeSafeClient() as client:
        response = ask_sdk(client, "I was charged twice for the same order.")
        assert response.request_id.startswith("req_")
        check_sdk_answers(response.answers)


@pytest.mark.usefixtures("sdk_environment")
async def test_the_official_asynchronous_sdk_parses_all_three_answers() -> None:
    async with AsyncTypeSafeClient() as client:
        response = await ask_sdk(client, "I was charged twice for the same order.")
        check_sdk_answers(response.answers)


def check_sdk_answers(answers) -> None:
    assert 0 <= answers["billing"].noul <= 1
    assert answers["team"].choice in ("billing", "shipping")
    assert sum(answers["team"].probabilities.values()) == pytest.approx(1)
    assert 0 <= answers["anger"].score <= 2


@pytest.mark.faults
def test_a_worker_killed_under_load_costs_no_request(embedded_model: ModelFolder) -> None:
    """Every client gets the answer it got before, while workers are killed one after the other, and all come back."""
    states = [f"Order {i}: the parcel is {i} days late and nobody answers." for i in range(LOAD_REQUESTS_EACH)]
    with running(embedded_model.path, "--workers=2", "--deadline-ms=60000") as cluster:
        expected = {state: cluster.decide(state).content for state in states}
        wrong: list[object] = []

        def load(first: int) -> None:
            for state in states[first:] + states[:first]:  # not all the same at once: that would be one execution
                response = cluster.decide(state)
                if response.content != expected[state]:
                    wrong.append(response.text)

        def answered() -> float:
            return cluster.metric("ostraka_requests_total", route="/v1/systemone", status="200")

        shifts = [number * LOAD_REQUESTS_EACH // LOAD_THREADS for number in range(LOAD_THREADS)]
        threads = [threading.Thread(target=load, args=(shift,)) for shift in shifts]
        for thread in threads:
            thread.start()
        for name in ("w0", "w1"):
            victim = cluster.wait_worker("is at work", lambda w: w["running_tokens"] > 0, name)
            os.kill(victim["pid"], signal.SIGKILL)
            cluster.wait_worker("is back", lambda w, pid=victim["pid"]: w["pid"] != pid and w["state"] == "ready", name)
            # Else what ran in this one might be running in the next one killed, which no request is given a third try after.
            enough = answered() + 2 * LOAD_THREADS
            wait_for(
                lambda enough=enough: answered() >= enough or not any(map(threading.Thread.is_alive, threads)),
                "all go on",
            )
        for thread in threads:
            thread.join(120)
        assert not wrong
        assert answered() == LOAD_THREADS * LOAD_REQUESTS_EACH + len(states)
        assert sum(w["restarts"] for w in cluster.health()["workers"]) == 2
        assert cluster.stop() == 0


LOAD_ENGINE = (
    "import sys; from pathlib import Path; from ostraka_worker.onnx_engine import OnnxEngine as E; E(Path(sys.argv[1]))"
)
LOAD_BARE = "import sys, onnxruntime as ort; ort.InferenceSession(sys.argv[1], providers=['CPUExecutionProvider'])"


@pytest.mark.parametrize(("program", "is_silent"), [(LOAD_ENGINE, True), (LOAD_BARE, False)])
def test_onnxruntime_keeps_no_device_id(
    embedded_model: ModelFolder, tmp_path: Path, program: str, is_silent: bool
) -> None:
    """Its telemetry begins by writing a device id and an event store below HOME. The bare runtime is the control: the
    day it stops doing so, this test must find another sign."""
    environment = {name: os.environ[name] for name in ("PATH", "PYTHONPATH") if name in os.environ}
    environment["HOME"] = str(tmp_path)
    subprocess.run([sys.executable, "-c", program, str(embedded_model.graph)], env=environment, check=True)
    assert (not list(tmp_path.rglob("*"))) == is_silent


def test_no_process_talks_to_anyone(real_cluster: Cluster, tmp_path: Path) -> None:
    real_cluster.decide("x")
    processes = [psutil.Process(real_cluster.process.pid)]
    processes += processes[0].children(recursive=True)
    port = int(real_cluster.url.rpartition(":")[2])
    for process in processes:
        for connection in process.net_connections("inet"):
            assert (connection.laddr.ip, connection.laddr.port) == ("127.0.0.1", port)
        if "ostraka_worker" in " ".join(process.cmdline()):
            assert process.environ()["ORT_DISABLE_TELEMETRY"] == "1"


async def test_many_clients_at_once(real_cluster: Cluster) -> None:
    """More requests than fit any batch; each gets its own answer."""
    states = [f"Ticket {i} is about topic {i * 7}." for i in range(40)]
    loop = asyncio.get_running_loop()
    at_once = await asyncio.gather(*(loop.run_in_executor(None, real_cluster.decide, state) for state in states))
    alone = [real_cluster.decide(state) for state in states]
    assert [each.content for each in at_once] == [each.content for each in alone]
    wait_for(lambda: real_cluster.health()["engine"]["batched_requests"] > 0, "some were read together")
