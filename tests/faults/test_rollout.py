"""`ostraka rollout` as a user runs it, under steady load: nobody's request fails, and each client's model changes once."""

import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from ostraka.running_cluster import RunningCluster
from tests.cluster import STOP_S, Cluster, running, wait_for
from tests.fake_model import make_fake_model
from tests.waiting import name_of

pytestmark = pytest.mark.faults

CLIENTS = 8
QUESTIONS = {"q": {"type": "noul", "instructions": "Is it so?"}}
QUICK = ("--share=1", "--requests=20", "--shift-s=0.6")


class Load:
    """Each client keeps its connection and asks the same again and again; `seen` are its answers, repetitions left out."""

    def __init__(self, url: str) -> None:
        self.failed: list[str] = []
        self.answered = 0
        self.seen: list[list[float]] = [[] for _ in range(CLIENTS)]
        self._url = url
        self._is_over = threading.Event()
        self._threads = [threading.Thread(target=self._ask, args=(n,), daemon=True) for n in range(CLIENTS)]
        for thread in self._threads:
            thread.start()

    def _ask(self, number: int) -> None:
        body = {"model": "jev-latest", "state": f"state {number}", "questions": QUESTIONS}
        with httpx.Client(base_url=self._url, timeout=60) as client:
            while not self._is_over.is_set():
                try:
                    response = client.post("/v1/systemone", json=body)
                    response.raise_for_status()
                    p = response.json()["answers"]["q"]["noul"]
                except Exception as bad:  # noqa: BLE001  whatever it is, it is a failed request
                    self.failed.append(f"{type(bad).__name__}: {bad}")
                    continue
                self.answered += 1
                if self.seen[number][-1:] != [p]:
                    self.seen[number].append(p)

    def answers(self, count: int) -> None:
        """Waits for so many more."""
        until = self.answered + count
        wait_for(lambda: self.answered >= until or self.failed, f"{count} more answers")

    def end(self) -> None:
        self._is_over.set()
        for thread in self._threads:
            thread.join(30)


@contextmanager
def load_on(cluster: Cluster) -> Iterator[Load]:
    load = Load(cluster.url)
    try:
        load.answers(CLIENTS)
        yield load
    finally:
        load.end()
    assert load.failed == []


def start_rollout(cluster: Cluster, *flags: str) -> "subprocess.Popen[str]":
    command = [sys.executable, "-m", "ostraka", "rollout", f"--server={cluster.url}", *flags]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def end(rolling: "subprocess.Popen[str]") -> tuple[int, list[dict[str, Any]], str]:
    with rolling:
        out, err = rolling.communicate(timeout=60)
    return rolling.returncode, [json.loads(line) for line in out.splitlines()], err


def roll(cluster: Cluster, *flags: str) -> tuple[int, list[dict[str, Any]], str]:
    return end(start_rollout(cluster, *flags))


@contextmanager
def half_sent(cluster: Cluster) -> Iterator[Callable[[], bytes]]:
    """A request whose body is on its way; the call sends what is left of it, and gives the answer."""
    body = json.dumps({"model": "jev-latest", "state": "s", "questions": QUESTIONS}).encode()
    head = b"POST /v1/systemone HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n" % len(body)
    host, _, port = cluster.url.removeprefix("http://").rpartition(":")
    with socket.create_connection((host, int(port)), timeout=20) as client:
        client.sendall(head + body[:-1])

        def send_the_rest() -> bytes:
            client.sendall(body[-1:])
            return client.recv(1 << 16)

        yield send_the_rest


def workers_of(cluster: Cluster) -> set[int]:
    return {worker["pid"] for worker in cluster.health()["workers"]}


def wait_phase(cluster: Cluster, phase: str, times: int = 1) -> None:
    def reached() -> bool:
        return sum(e.get("event") == "rollout_phase" and e["phase"] == phase for e in list(cluster.events)) >= times

    wait_for(reached, f"phase {phase}")


@pytest.fixture
def models(tmp_path: Path) -> dict[str, Path]:
    """`near` answers a little otherwise than `old`, `far` quite so."""
    plans = {"old": {}, "near": {"logit_shift": 0.01}, "far": {"logit_shift": 3.0}, "broken": {"fail_to_load": "no"}}
    return {name: make_fake_model(tmp_path / name, **plan).path for name, plan in plans.items()}


def test_rollouts_under_load_fail_no_request(models: dict[str, Path]) -> None:
    """The last of them meets the server's own stop."""
    with running(models["old"], "--workers=2") as cluster, load_on(cluster) as load:
        first = workers_of(cluster)

        code, said, err = roll(cluster, str(models["far"]), *QUICK)
        assert (code, said[-1]["phase"]) == (1, "aborted"), err
        assert "differ by" in said[-1]["reason"]
        assert said[-1]["figures"]["requests"] >= 20

        code, said, err = roll(cluster, str(models["broken"]), *QUICK)
        assert (code, said[-1]["phase"]) == (1, "aborted"), err
        assert "died" in said[-1]["reason"]

        code, _, err = roll(cluster, str(models["old"].parent / "nowhere"))
        assert code == 1
        assert "nowhere" in err

        assert workers_of(cluster) == first
        assert {len(seen) for seen in load.seen} == {1}
        assert cluster.metric("ostraka_rollout_requests_total", outcome="taken_back") == 0

        code, said, err = roll(cluster, str(models["near"]), *QUICK)
        assert code == 0, (said[-1:], err)
        phases = ["starting", "shadowing", "shifting", "switching", "draining", "done"]
        assert list(dict.fromkeys(each["phase"] for each in said)) == phases
        assert said[-1]["figures"]["passed_on"] > 0
        load.answers(3 * CLIENTS)
        assert {len(seen) for seen in load.seen} == {2}
        assert workers_of(cluster).isdisjoint(first)
        assert not any(psutil.pid_exists(pid) for pid in first)

        code, said, err = roll(cluster, "--requests=0", "--shift-s=0")  # the same anew, and from a second generation
        assert code == 0, (said[-1:], err)
        load.answers(3 * CLIENTS)
        assert {len(seen) for seen in load.seen} == {2}
        load.end()

        rolling = start_rollout(cluster, "--requests=0", "--shift-s=0")
        wait_phase(cluster, "starting", 5)
        with half_sent(cluster) as send_the_rest:  # what the old generation has begun to read keeps it draining
            wait_phase(cluster, "draining", 3)
            cluster.remember_children()
            cluster.process.send_signal(signal.SIGTERM)
            cluster.wait_event("stopping")
            assert send_the_rest().startswith(b"HTTP/1.1 200 OK")
        assert cluster.process.wait(STOP_S) == 0
        cluster.check_no_orphans()
        assert end(rolling)[1][-1]["phase"] == "done"


def test_what_may_happen_to_a_rollout(models: dict[str, Path]) -> None:
    """Each ends it, and costs no request; nothing of it is left. The last is the server's own stop."""
    waiting = ("--share=1", "--requests=1000000", "--shadow-s=60")
    with running(models["old"], "--workers=1") as cluster, load_on(cluster) as load:
        served = psutil.Process(cluster.process.pid).children(recursive=True)

        def shadowing(times: int) -> "subprocess.Popen[str]":
            rolling = start_rollout(cluster, str(models["near"]), *waiting)
            wait_phase(cluster, "shadowing", times)
            return rolling

        def new_processes() -> list[psutil.Process]:
            return [c for c in psutil.Process(cluster.process.pid).children(recursive=True) if c not in served]

        rolling = shadowing(1)
        second = roll(cluster, "--requests=0")
        assert second[0] == 1
        assert "another rollout is under way" in second[2]
        next(p for p in new_processes() if name_of(p) == "ostraka w0").kill()
        code, said, _ = end(rolling)
        assert code == 1
        assert "w0 of the new generation died (SIGKILL)" in said[-1]["reason"]

        rolling = shadowing(2)
        rolling.send_signal(signal.SIGINT)
        assert end(rolling)[0] == 130
        wait_phase(cluster, "aborted", 2)
        wait_for(
            lambda: {name_of(p) for p in new_processes()} <= {"ostraka spare", "ostraka gspare", ""},
            "nothing of it is left",
        )

        load.end()  # a gateway's death is seen by its clients
        rolling = shadowing(3)
        both = RunningCluster(cluster.url).gateways()
        assert both.keys() == {"gateway@1", "gateway@4"}
        assert {"w0@1", "w0@4"} <= RunningCluster(cluster.url).workers().keys()
        assert both["gateway@1"] in {p.pid for p in served}
        os.kill(both["gateway@1"], signal.SIGKILL)
        code, said, _ = end(rolling)
        assert code == 1
        assert "the gateway that serves died (SIGKILL)" in said[-1]["reason"]
        wait_for(lambda: cluster.ask_in_background("x").response().status_code == 200, "the old one serves again")

        rolling = shadowing(4)
        assert cluster.stop(signal.SIGTERM) == 0
        code, said, err = end(rolling)
        assert (code, said[-1]["reason"]) == (1, "the server is stopping"), err


def test_a_worker_that_has_grown_is_replaced_without_a_lost_request(tmp_path: Path) -> None:
    model = make_fake_model(tmp_path / "model").path
    with running(model, "--workers=2", "--max-worker-rss-mb=90") as cluster, load_on(cluster) as load:
        before = {worker["worker"]: worker["pid"] for worker in cluster.health()["workers"]}
        assert cluster.decide("<grow>").status_code == 200
        recycled = cluster.wait_event("worker_recycled")
        assert recycled["code"] == "0"
        assert cluster.event("recycling_worker", child=recycled["child"])["rss_mb"] >= 90
        after = {worker["worker"]: worker["pid"] for worker in cluster.health()["workers"]}
        assert before[recycled["child"]] != after[recycled["child"]]
        assert cluster.metric("ostraka_recycled_workers_total") >= 1  # what is slow to grow is given to both
        assert cluster.metric("ostraka_lost_workers_total", reason="replaced") == 0
        load.answers(CLIENTS)
