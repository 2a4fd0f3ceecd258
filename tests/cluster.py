"""A real cluster for tests: `ostraka serve` as a user starts it, on a free port, watched through its own log lines."""

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx
import psutil
from prometheus_client.parser import text_string_to_metric_families

from ostraka.running_cluster import GATEWAY_NAME
from ostraka_shared.addresses import gateway_name
from tests.waiting import DEADLINE_S, name_of, still_alive, wait_until

START_S = 60.0
STOP_S = 40.0


def wait_for(condition: Callable[[], Any], what: str, deadline_s: float = DEADLINE_S) -> Any:
    """The condition's first true value. Fails naming `what` when the deadline passes."""
    return wait_until(condition, deadline_s, what)


class Cluster:
    """`events` are the JSON log lines of all its processes so far; `lines` is everything it wrote to stderr."""

    def __init__(self, model: Path, *flags: str, env: dict[str, str] | None = None) -> None:
        command = [sys.executable, "-m", "ostraka", "serve", "--port=0", "--log-format=json", f"--model={model}"]
        # No load balancer here, and no request late because the machine is: a test's own flags come later, and count
        command += ["--not-ready-s=0", "--deadline-ms=60000"]
        self.process = subprocess.Popen(
            [*command, *flags],
            stderr=subprocess.PIPE,
            stdin=subprocess.DEVNULL,
            text=True,
            env=os.environ | (env or {}),
        )
        self.lines: list[str] = []
        self.events: list[dict[str, Any]] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        self._children: list[psutil.Process] = []

    def _read(self) -> None:
        assert self.process.stderr
        for line in self.process.stderr:
            self.lines.append(line)
            if line.startswith("{"):
                self.events.append(json.loads(line))

    def event(self, name: str, **fields: Any) -> dict[str, Any] | None:
        """The first log line of that name with those fields, if it was written yet."""
        wanted = {"event": name, **fields}
        return next((e for e in list(self.events) if wanted.items() <= e.items()), None)

    def wait_event(self, name: str, deadline_s: float = DEADLINE_S, **fields: Any) -> dict[str, Any]:
        found: dict[str, Any] = wait_for(lambda: self.event(name, **fields), f"event {name} {fields}", deadline_s)
        return found

    def wait_ready(self) -> "Cluster":
        def listening_or_dead() -> Any:
            if self.process.poll() is not None:
                raise AssertionError("the cluster ended:\n" + "".join(self.lines))
            return self.event("listening")

        self.url = wait_for(listening_or_dead, "the cluster listens", START_S)["url"]
        self.client = httpx.Client(base_url=self.url, timeout=60)
        self._children = psutil.Process(self.process.pid).children(recursive=True)
        return self

    def health(self) -> dict[str, Any]:
        health: dict[str, Any] = self.client.get("/health").json()
        return health

    def worker(self, name: str) -> dict[str, Any] | None:
        return next((w for w in self.health()["workers"] if w["worker"] == name), None)

    def wait_worker(self, what: str, condition: Callable[[dict[str, Any]], bool], name: str = "w0") -> dict[str, Any]:
        def found() -> Any:
            worker = self.worker(name)
            return worker if worker and condition(worker) else None

        worker: dict[str, Any] = wait_for(found, f"{name} {what}")
        return worker

    def gateways(self) -> dict[str, psutil.Process]:
        """By name; those that are there now."""
        children = psutil.Process(self.process.pid).children()
        named = [(found[1], child) for child in children if (found := GATEWAY_NAME.fullmatch(name_of(child)))]
        return {gateway_name(int(number)): child for number, child in sorted(named, key=lambda each: each[0])}

    def named(self, name: str) -> list[psutil.Process]:
        """The supervisor's children of that name, `ostraka` left out."""
        return [c for c in psutil.Process(self.process.pid).children() if name_of(c) == f"ostraka {name}"]

    def metric(self, name: str, **labels: str) -> float:
        """0 where there is no such series."""
        for family in text_string_to_metric_families(self.client.get("/metrics").text):
            for sample in family.samples:
                if sample.name == name and sample.labels == labels:
                    return float(sample.value)
        return 0.0

    def decide(self, state: str, questions: dict[str, Any] | None = None, **headers: str) -> httpx.Response:
        questions = questions or {"q": {"type": "noul", "instructions": "Is it so?"}}
        body = {"model": "jev-latest", "state": state, "questions": questions}
        return self.client.post("/v1/systemone", json=body, headers=headers)

    def ask_in_background(self, state: str, **headers: str) -> "Asked":
        return Asked(lambda: self.decide(state, **headers))

    def stop(self, number: signal.Signals = signal.SIGINT) -> int:
        """Exit code of an orderly end; nothing may be left behind."""
        self.remember_children()
        if self.process.poll() is None:
            self.process.send_signal(number)
        code = self.process.wait(STOP_S)
        self.check_no_orphans()
        return code

    def remember_children(self) -> None:
        with suppress(psutil.NoSuchProcess):
            self._children += psutil.Process(self.process.pid).children(recursive=True)

    def check_no_orphans(self) -> None:
        alive = still_alive(self._children)
        assert not alive, f"left behind: {alive}"

    def close(self) -> None:
        if self.process.poll() is None:
            self.remember_children()
            self.process.kill()
        self.process.wait()
        for child in self._children:
            with suppress(psutil.NoSuchProcess):
                child.kill()
        still_alive(self._children)
        self._reader.join(10)
        assert self.process.stderr
        self.process.stderr.close()
        if hasattr(self, "client"):
            self.client.close()


class Asked:
    """A request made in a thread; `response()` waits for it."""

    def __init__(self, ask: Callable[[], httpx.Response]) -> None:
        self._found: httpx.Response | Exception | None = None
        self._thread = threading.Thread(target=self._run, args=(ask,), daemon=True)
        self._thread.start()

    def _run(self, ask: Callable[[], httpx.Response]) -> None:
        try:
            self._found = ask()
        except Exception as bad:  # noqa: BLE001  raised again where it is waited for
            self._found = bad

    @property
    def is_done(self) -> bool:
        return not self._thread.is_alive()

    def response(self, deadline_s: float = 60.0) -> httpx.Response:
        self._thread.join(deadline_s)
        assert self._found is not None, "no answer"
        if isinstance(self._found, Exception):
            raise self._found
        return self._found


@contextmanager
def running(model: Path, *flags: str, env: dict[str, str] | None = None) -> Iterator[Cluster]:
    cluster = Cluster(model, *flags, env=env)
    try:
        yield cluster.wait_ready()
    finally:
        cluster.close()
