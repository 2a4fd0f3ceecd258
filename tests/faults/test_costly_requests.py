"""What the costliest requests of many clients at once may take of the gateway's memory."""

import json
import socket
from collections.abc import Callable, Iterator
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
"""What all of them may add at once: four bodies of the largest size, one parsed, and two threads that tokenize."""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    path = tmp_path_factory.mktemp("costly")
    model = make_fake_model(path / "model", context_tokens=32_768)
    with running(model.path, "--workers=2", f"--run-dir={path / 'run'}") as found:
        yield found


def find_gateway(cluster: Cluster) -> psutil.Process:
    return cluster.gateways()["gateway"]


def forget_peak(process: psutil.Process) -> int:
    """What it has now."""
    Path(f"/proc/{process.pid}/clear_refs").write_text("5", encoding="ascii")
    return int(process.memory_info().rss)


def peak_bytes(process: psutil.Process) -> int:
    """The most it had since, as the kernel counts: nothing between two looks is missed."""
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


def long_choice() -> bytes:
    criteria = {f"o{number}": "late or not? " * 600 for number in range(255)}
    return json.dumps({"state": "x", "questions": {"q": {"type": "choice", "criteria": criteria}}}).encode()


def state_of(value: bytes, count: int) -> bytes:
    return b'{"questions": {"q": {"type": "noul"}}, "state": [' + value * count + b"0]}"


def openai_objects() -> bytes:
    """Nearly as many values as a body may have, each of the most costly kind."""
    part = b'{"type": "input_json", "data": [' + b'{"a":1},' * 149_000 + b"0]}"
    question = b'[{"type": "predicate", "instructions": "Is it?"}]'
    return b'{"input": [{"role": "user", "content": [' + part + b']}], "questions": ' + question + b"}"


def indented_state() -> bytes:
    """A state within its limit, and 17 MB as the prompt has it: a line for each number, 180 deep."""
    state = b"[" * 180 + b"0," * 85_000 + b"0" + b"]" * 180
    return b'{"questions": {"q": {"type": "noul"}}, "state": ' + state + b"}"


@pytest.mark.parametrize(
    ("make", "status"),
    [
        (many_questions, 200),
        (long_choice, 422),
        (lambda: state_of(b"1,", 7_500_000), 422),
        (lambda: state_of(b'{"a":1},', 149_000), 422),
        (openai_objects, 400),
        (indented_state, 422),
        (deep_nesting, 422),
        (huge, 413),
    ],
)
def test_the_costliest_requests_take_a_bounded_memory(cluster: Cluster, make: Callable[[], bytes], status: int) -> None:
    gateway, body = find_gateway(cluster), make()
    path = "/v1/decisions" if make is openai_objects else "/v1/systemone"
    cluster.decide("first")
    before = forget_peak(gateway)

    def ask(_: int) -> int:
        headers = {"x-deadline-ms": "60000"}
        return httpx.post(f"{cluster.url}{path}", content=body, headers=headers, timeout=60).status_code

    with ThreadPoolExecutor(CLIENTS) as pool:
        found = set(pool.map(ask, range(CLIENTS)))
    assert found == {status}
    assert peak_bytes(gateway) - before < BOUND_BYTES
    assert cluster.decide("afterwards").status_code == 200


def test_uploads_that_never_end_take_a_bounded_memory(cluster: Cluster) -> None:
    """Slow-loris: 200 clients, each with half of a body of a megabyte sent."""
    gateway = find_gateway(cluster)
    cluster.decide("first")
    before = forget_peak(gateway)
    host, port = cluster.url.removeprefix("http://").split(":")
    opening = f"POST /v1/systemone HTTP/1.1\r\nHost: {host}\r\nContent-Length: 1000000\r\n\r\n".encode()
    with ExitStack() as held:
        for _ in range(200):
            link = held.enter_context(socket.create_connection((host, int(port)), timeout=20))
            link.sendall(opening + b"x" * 500_000)
        assert cluster.decide("meanwhile").status_code == 200
        assert peak_bytes(gateway) - before < BOUND_BYTES
