"""What the costliest requests of many clients at once may take of the gateway's memory."""

import json
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import httpx
import psutil
import pytest

from tests.cluster import Cluster, running
from tests.fake_model import make_fake_model

pytestmark = pytest.mark.faults

CLIENTS = 8
BOUND_BYTES = 200 << 20
"""What all of them may add at once. Seen: 15 MB, 85 MB (ten megabytes of brackets each), 1 MB, and 26 MB of uploads."""


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    model = make_fake_model(tmp_path / "model", context_tokens=32_768)
    with running(model.path, "--workers=2", f"--run-dir={tmp_path / 'run'}") as found:
        yield found


def find_gateway(cluster: Cluster) -> psutil.Process:
    children = psutil.Process(cluster.process.pid).children()
    return next(child for child in children if "ostraka_gateway" in " ".join(child.cmdline()))


def peak_bytes(process: psutil.Process) -> int:
    """The most it ever had, as the kernel counts: nothing between two looks is missed."""
    status = Path(f"/proc/{process.pid}/status").read_text(encoding="ascii")
    return int(status.split("VmHWM:")[1].split()[0]) << 10


def noul(text: str) -> dict[str, str]:
    return {"type": "noul", "instructions": text}


def many_questions() -> bytes:
    questions = {f"q{number}": noul(f"Is it {number}?") for number in range(1024)}
    return json.dumps({"state": "late " * 200, "questions": questions}).encode()


def deep_nesting() -> bytes:
    return b'{"questions": {"q": {"type": "noul"}}, "state": ' + b"[" * 5_000_000 + b"]" * 5_000_000 + b"}"


def huge() -> bytes:
    return b'{"state": "' + b"x" * 100_000_000 + b'"}'


@pytest.mark.parametrize(("make", "statuses"), [(many_questions, {200}), (deep_nesting, {400, 422}), (huge, {413})])
def test_the_costliest_requests_take_a_bounded_memory(cluster: Cluster, make, statuses: set[int]) -> None:
    gateway, body = find_gateway(cluster), make()
    cluster.decide("first")
    before = gateway.memory_info().rss

    def ask(_: int) -> int:
        headers = {"x-deadline-ms": "60000"}
        return httpx.post(f"{cluster.url}/v1/systemone", content=body, headers=headers, timeout=60).status_code

    with ThreadPoolExecutor(CLIENTS) as pool:
        found = set(pool.map(ask, range(CLIENTS)))
    assert found <= statuses
    assert peak_bytes(gateway) - before < BOUND_BYTES
    assert cluster.decide("afterwards").status_code == 200


def test_uploads_that_never_end_take_a_bounded_memory(cluster: Cluster) -> None:
    """Slow-loris: 200 clients, each with half of a body of a megabyte sent."""
    gateway = find_gateway(cluster)
    cluster.decide("first")
    before = gateway.memory_info().rss
    host, port = cluster.url.removeprefix("http://").split(":")
    opening = f"POST /v1/systemone HTTP/1.1\r\nHost: {host}\r\nContent-Length: 1000000\r\n\r\n".encode()
    with ExitStack() as held:
        for _ in range(200):
            link = held.enter_context(socket.create_connection((host, int(port)), timeout=20))
            link.sendall(opening + b"x" * 500_000)
        assert cluster.decide("meanwhile").status_code == 200
        assert peak_bytes(gateway) - before < BOUND_BYTES
