"""Requests a second, and the gateways' CPU a request, with one gateway and with two, before a model that takes no time.

    python -m benchmarks.gateways --rounds 5 --requests 3000

Interleaved rounds of a closed loop. On two cores the client, both gateways and the workers share them, so that what two
gateways gain is less than on a machine where each has its own; what they cost shows all the same.
"""

import argparse
import asyncio
import statistics
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

import uvloop

from benchmarks.faults.wire import Connection
from benchmarks.load import make_bodies
from tests.cluster import Cluster, running
from tests.fake_model import make_fake_model

PATH = "/v1/systemone"
WARM_UP = 200


async def drive(url: str, bodies: list[bytes], in_flight: int) -> float:
    """Requests a second. Each client keeps one connection."""
    waiting = iter(bodies)

    async def client() -> None:
        connection = Connection(url)
        for body in waiting:
            answer = await connection.ask("POST", PATH, body)
            assert answer.status == 200, answer
        connection.close()

    begun = time.perf_counter()
    async with asyncio.TaskGroup() as group:
        for _ in range(in_flight):
            group.create_task(client())
    return len(bodies) / (time.perf_counter() - begun)


def gateway_cpu_s(cluster: Cluster) -> list[float]:
    """Of each gateway so far."""
    times = [gateway.cpu_times() for gateway in cluster.gateways().values()]
    return [each.user + each.system for each in times]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--requests", type=int, default=3000)
    parser.add_argument("--in-flight", type=int, default=32)
    values = parser.parse_args()
    with ExitStack() as stack:
        model = make_fake_model(Path(stack.enter_context(tempfile.TemporaryDirectory())) / "model").path
        clusters = {n: stack.enter_context(running(model, "--workers=2", f"--gateways={n}")) for n in (1, 2)}
        measure(clusters, make_bodies(values.requests), values.rounds, values.in_flight)


def measure(clusters: dict[int, Cluster], bodies: list[bytes], rounds: int, in_flight: int) -> None:
    rates: dict[int, list[float]] = {1: [], 2: []}
    cpu_us: dict[int, list[float]] = {1: [], 2: []}
    for cluster in clusters.values():
        uvloop.run(drive(cluster.url, bodies[:WARM_UP], in_flight))
    for number in range(rounds):
        for gateways, cluster in clusters.items():
            before = gateway_cpu_s(cluster)
            rates[gateways].append(uvloop.run(drive(cluster.url, bodies, in_flight)))
            spent = [after - earlier for after, earlier in zip(gateway_cpu_s(cluster), before, strict=True)]
            cpu_us[gateways].append(sum(spent) / len(bodies) * 1e6)
            share = max(spent) / sum(spent)
            print(
                f"round {number + 1}, {gateways} gateway(s): {rates[gateways][-1]:.0f} requests/s, "
                f"{cpu_us[gateways][-1]:.0f} us of gateway CPU a request, {share:.0%} of it in the busiest",
                flush=True,
            )
    ratios = [two / one for one, two in zip(rates[1], rates[2], strict=True)]
    cpu_ratio = statistics.median(two / one for one, two in zip(cpu_us[1], cpu_us[2], strict=True))
    print(f"two gateways against one: median {statistics.median(ratios):.2f}x, {min(ratios):.2f}..{max(ratios):.2f}")
    print(f"gateway CPU a request, two against one: median {cpu_ratio:.2f}x")


if __name__ == "__main__":
    main()
