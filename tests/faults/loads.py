"""Steady load of a cluster, of which each answer is counted."""

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

import httpx

from tests.cluster import Cluster, wait_for

BODY = {"model": "jev-latest", "state": "s", "questions": {"q": {"type": "noul", "instructions": "Is it so?"}}}

WAIT_S = 60
HEADERS = {"x-deadline-ms": str(WAIT_S * 1000)}
"""That the machine does other things too is to make no request late."""


class Load:
    """Clients one after the other's answer: with a connection each that they keep, or with a new one each time."""

    def __init__(self, cluster: Cluster, clients: int, *, keeps: bool) -> None:
        self.answers: Counter[tuple[int, bytes]] = Counter()
        self.errors: list[Exception] = []
        self._is_over = threading.Event()
        self._ask = self._keep if keeps else self._dial
        self._url = cluster.url
        self._threads = [threading.Thread(target=self._run, args=(n,), daemon=True) for n in range(clients)]
        for thread in self._threads:
            thread.start()

    @property
    def count(self) -> int:
        return sum(self.answers.values())

    def wait_for(self, more: int) -> None:
        before = self.count
        wait_for(lambda: self.count >= before + more or self.errors, f"{more} more answers")

    def end(self) -> None:
        self._is_over.set()
        for thread in self._threads:
            thread.join(30)

    def _run(self, number: int) -> None:
        try:
            self._ask({**BODY, "state": f"state {number}"})
        except Exception as bad:  # noqa: BLE001
            self.errors.append(bad)

    def _keep(self, body: dict[str, object]) -> None:
        with httpx.Client(base_url=self._url, timeout=WAIT_S, headers=HEADERS) as client:
            while not self._is_over.is_set():
                self._count(body, client.post("/v1/systemone", json=body))

    def _dial(self, body: dict[str, object]) -> None:
        while not self._is_over.is_set():
            self._count(body, httpx.post(f"{self._url}/v1/systemone", json=body, timeout=WAIT_S, headers=HEADERS))

    def _count(self, body: dict[str, object], response: httpx.Response) -> None:
        self.answers[response.status_code, f"{body['state']} {response.json().get('answers')}"] += 1


@contextmanager
def under_load(cluster: Cluster, *, keeps: bool) -> Iterator[Load]:
    load = Load(cluster, 4, keeps=keeps)
    try:
        load.wait_for(20)
        yield load
        load.wait_for(20)
    finally:
        load.end()
