"""What a request costs the gateway in CPU time: in a real server with the fake engine, and step by step right here.
And what a refusal does under overload, beside a probe, which is as little as HTTP alone.

python -m benchmarks.gateway_cpu --rounds 5 --requests 1500
"""

import argparse
import asyncio
import json
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import psutil

from benchmarks.raw_http import Connection, post
from ostraka_gateway.answers import encode_response
from ostraka_gateway.schemas import parse_request
from ostraka_gateway.served_model import ServedModel
from ostraka_shared.codec import decode, encode
from ostraka_shared.messages import Result, Work
from ostraka_shared.model_folder import ModelFolder
from tests.cluster import Cluster, running, wait_for
from tests.fake_model import make_fake_model

REPEATS = 2000
SLOW_MS_PER_TOKEN = 5.0
AHEAD = 100


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--requests", type=int, default=1500, help="in a round")
    parser.add_argument("--in-flight", type=int, default=8)
    values = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = make_fake_model(Path(scratch) / "model")
        for name, step in steps(folder).items():
            print(f"{name:38} {step_us(step):5.0f} us", flush=True)
        with running(folder.path, "--workers=1") as found:
            asyncio.run(drive(found.url, posts(found.url, "warm", values.requests), values.in_flight))
            measure(found, values, {"/v1/systemone": 200, "/livez": 200})
        slow = make_fake_model(Path(scratch) / "slow", ms_per_token=SLOW_MS_PER_TOKEN)
        with running(slow.path, "--workers=1") as found:
            asyncio.run(overload(found, values))


def measure(found: Cluster, values: argparse.Namespace, statuses: dict[str, int], **headers: str) -> None:
    """Of each path, in turns, where it answers with that status."""
    seen: dict[str, list[tuple[float, float]]] = {path: [] for path in statuses}
    for number in range(values.rounds):
        for path, status in statuses.items():
            requests = posts(found.url, str(number), values.requests, **headers)
            if path == "/livez":
                requests = [b"GET /livez HTTP/1.1\r\nHost: x\r\n\r\n"] * values.requests
            seen[path].append(one_round(found, requests, values.in_flight, status))
    for path, measured in seen.items():
        total, rate = (statistics.median(each) for each in zip(*measured, strict=True))
        name = f"{path}: {statuses[path]}, all of the process"
        print(f"{name:38} {total:5.0f} us, at {rate:.0f} requests a second", flush=True)


async def overload(found: Cluster, values: argparse.Namespace) -> None:
    """A queue longer than the deadline of those who are refused; its first call has shown how long that is."""
    ahead = posts(found.url, "ahead", AHEAD, x_deadline_ms="600000")
    waiting = asyncio.create_task(drive(found.url, ahead, AHEAD))
    await asyncio.to_thread(wait_for, lambda: found.health()["tokens_per_s"], "a call has shown how fast it is")
    await asyncio.to_thread(measure, found, values, {"/v1/systemone": 529, "/livez": 200}, x_deadline_ms="1000")
    waiting.cancel()


def posts(url: str, name: str, count: int, **headers: str) -> list[bytes]:
    return [post(url, make_body(f"{name}.{number}"), **headers) for number in range(count)]


def make_body(number: int | str) -> bytes:
    """About a hundred tokens of the fake model, which are bytes; each another, so that none is shared."""
    questions = {"q": {"type": "noul", "instructions": "Is it late?"}}
    return json.dumps({"state": f"Parcel {number} came late.", "questions": questions}).encode()


def steps(folder: ModelFolder) -> dict[str, Callable[[], object]]:
    """Those that can be had apart; HTTP, the event loop and the socket are what is left of the total."""
    model, body = ServedModel(folder), make_body(1)
    request = parse_request(body)
    tokens = model.tokenize(request)
    work = Work("req_0123456789abcdef01234567", 1, 9000, tokens.prefix, tokens.suffixes, tokens.state_tokens)
    result = encode(Result(work.request_id, 1, (0.5,), 0.1, 0.2))
    return {
        "parse and validate": lambda: parse_request(body),
        "prompts and tokens": lambda: model.tokenize(request),
        "WORK written": lambda: encode(work),
        "RESULT read": lambda: decode(result),
        "answer written": lambda: encode_response(request, "m", (0.5,), tokens.input_tokens),
    }


def step_us(step: Callable[[], object]) -> float:
    step()
    begun = time.process_time()
    for _ in range(REPEATS):
        step()
    return (time.process_time() - begun) / REPEATS * 1e6


def one_round(cluster: Cluster, requests: list[bytes], in_flight: int, status: int) -> tuple[float, float]:
    """(microseconds of the gateway's CPU a request, requests a second)."""
    gateway = find_gateway(cluster)
    before, begun = cpu_s(gateway), time.perf_counter()
    asyncio.run(drive(cluster.url, requests, in_flight, status))
    wall_s = time.perf_counter() - begun
    return (cpu_s(gateway) - before) / len(requests) * 1e6, len(requests) / wall_s


async def drive(url: str, requests: list[bytes], in_flight: int, status: int = 200) -> None:
    waiting = iter(requests)

    async def client() -> None:
        connection = Connection(url)
        for request in waiting:
            assert await connection.ask(request) == status
        connection.close()

    await asyncio.gather(*(client() for _ in range(in_flight)))


def find_gateway(cluster: Cluster) -> psutil.Process:
    return cluster.gateways()["gateway"]


def cpu_s(process: psutil.Process) -> float:
    """Of all its threads, ZeroMQ's and the tokenizer's too; in nanoseconds where a clock tick would be 10 ms."""
    threads = Path(f"/proc/{process.pid}/task").iterdir()
    return sum(int((each / "schedstat").read_text(encoding="ascii").split()[0]) for each in threads) / 1e9


if __name__ == "__main__":
    main()
