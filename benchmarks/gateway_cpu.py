"""What a request costs the gateway in CPU time: in a real server with the fake engine, and step by step right here.

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
from tests.cluster import Cluster, running
from tests.fake_model import make_fake_model

REPEATS = 2000


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
            asyncio.run(drive(found.url, values.requests, values.in_flight, "warm"))
            for path in ("/v1/systemone", "/livez"):
                measured = [one_round(found, values, path, number) for number in range(values.rounds)]
                total, rate = (statistics.median(each) for each in zip(*measured, strict=True))
                print(
                    f"{path + ', all of the process':38} {total:5.0f} us, at {rate:.0f} requests a second", flush=True
                )


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


def one_round(cluster: Cluster, values: argparse.Namespace, path: str, number: int) -> tuple[float, float]:
    """(microseconds of the gateway's CPU a request, requests a second)."""
    gateway = find_gateway(cluster)
    before, begun = cpu_s(gateway), time.perf_counter()
    asyncio.run(drive(cluster.url, values.requests, values.in_flight, str(number), path))
    wall_s = time.perf_counter() - begun
    return (cpu_s(gateway) - before) / values.requests * 1e6, values.requests / wall_s


async def drive(url: str, count: int, in_flight: int, name: str, path: str = "/v1/systemone") -> None:
    requests = [post(url, make_body(f"{name}.{number}"), path) for number in range(count)]
    if path != "/v1/systemone":
        requests = [f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode()] * count
    waiting = iter(requests)

    async def client() -> None:
        connection = Connection(url)
        for request in waiting:
            assert await connection.ask(request) == 200
        connection.close()

    await asyncio.gather(*(client() for _ in range(in_flight)))


def find_gateway(cluster: Cluster) -> psutil.Process:
    children = psutil.Process(cluster.process.pid).children()
    return next(child for child in children if "ostraka_gateway" in child.cmdline())


def cpu_s(process: psutil.Process) -> float:
    """Of all its threads, ZeroMQ's and the tokenizer's too; in nanoseconds where a clock tick would be 10 ms."""
    threads = Path(f"/proc/{process.pid}/task").iterdir()
    return sum(int((each / "schedstat").read_text(encoding="ascii").split()[0]) for each in threads) / 1e9


if __name__ == "__main__":
    main()
