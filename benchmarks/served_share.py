"""How much of the engine reaches the client: one worker's served tokens a second as a share of a bare loop over the
same engine on the same batches, in interleaved rounds. Then the gateway's CPU a request, and what a second worker adds.

    make bench          or   python -m benchmarks.served_share --rounds 5 --requests 120 --precision int8
"""

import argparse
import os
import statistics
import time
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path

import psutil

from benchmarks.load import make_bodies, run_load
from ostraka_gateway.schemas import parse_request
from ostraka_gateway.served_model import ServedModel
from ostraka_shared.messages import Work
from ostraka_shared.model_folder import ModelFolder, open_folder
from ostraka_worker.batcher import Batcher
from ostraka_worker.build.builder import ensure_embedded
from ostraka_worker.build.catalog import DEFAULT_PRECISION, PRECISIONS
from ostraka_worker.build.progress import for_stderr
from ostraka_worker.config import DEFAULT_BATCH_TOKENS
from ostraka_worker.engines import load_engine
from ostraka_worker.fair_line import Waiting
from ostraka_worker.inference import BatchRun
from ostraka_worker.own_memory import own_mapped
from tests.cluster import Cluster, running

IN_FLIGHT = 16


def main() -> None:
    values = parse_arguments()
    folder = ensure_embedded(Path("~/.cache/ostraka").expanduser(), values.precision, for_stderr())
    bodies = make_bodies(values.requests)
    works = tokenize(folder, bodies)
    cache = f"--state-cache={values.state_cache}"
    with running(folder.path, "--workers=1", cache) as one, running(folder.path, "--workers=2", cache) as two:
        keep_off(worker_core(one), one)
        with bare_loop(folder, works, worker_core(one)) as bare:
            report_share(one, bare, bodies, values.rounds)
        report_scaling(one, two, bodies, values.rounds)


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--requests", type=int, default=120)
    parser.add_argument("--state-cache", type=int, default=16, help="states each worker keeps; 0 as the bare loop")
    parser.add_argument("--precision", choices=PRECISIONS, default=DEFAULT_PRECISION)
    return parser.parse_args()


def tokenize(folder: ModelFolder, bodies: list[bytes]) -> list[Work]:
    model = ServedModel(folder)
    tokenized = [model.tokenize(parse_request(body)) for body in bodies]
    return [Work(str(number), 1, 10**6, each.prefix, each.suffixes) for number, each in enumerate(tokenized)]


@contextmanager
def bare_loop(folder: ModelFolder, works: list[Work], core: int) -> Iterator[Connection]:
    """A process on the worker's own core that runs all batches, one after the other, each time it is told to."""
    context = get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=serve_bare, args=(theirs, str(folder.path), works, core), daemon=True)
    process.start()
    try:
        yield ours
    finally:
        process.kill()
        process.join()


def serve_bare(pipe: Connection, path: str, works: list[Work], core: int) -> None:
    os.sched_setaffinity(0, {core})
    folder = open_folder(Path(path))
    engine = load_engine(folder, threads=1)
    own_mapped(folder.path / name for name in folder.hashes)  # as the served workers' weights are
    while pipe.recv():
        batcher = Batcher(DEFAULT_BATCH_TOKENS)
        for work in works:
            batcher.add(Waiting.take(work, 0.0))
        begun, cpu = time.perf_counter(), time.process_time()
        while sizes := batcher.sizes:
            batch = batcher.next_batch(min(sizes))
            run = BatchRun([waiting.work for waiting in batch], DEFAULT_BATCH_TOKENS)
            for call in run.calls:
                run.run(engine, call)
        taken = time.perf_counter() - begun, time.process_time() - cpu
        pipe.send(tuple(sum(work.tokens for work in works) / seconds for seconds in taken))


def run_bare(pipe: Connection) -> tuple[float, float]:
    """Tokens a second, and a second of its CPU time."""
    pipe.send("run")
    rates: tuple[float, float] = pipe.recv()
    return rates


def worker_core(cluster: Cluster) -> int:
    """Of a machine with two cores or more: the worker's first; the client and the gateway use the others."""
    (core,) = worker(cluster).cpu_affinity()
    return int(core)


def keep_off(core: int, cluster: Cluster) -> None:
    """The client, which is this process, and the gateway leave the worker's core alone, as on a machine with more."""
    others = os.sched_getaffinity(0) - {core}
    if others:
        os.sched_setaffinity(0, others)
        gateway(cluster).cpu_affinity(list(others))


def gateway(cluster: Cluster) -> psutil.Process:
    return cluster.gateways()["gateway"]


def worker(cluster: Cluster) -> psutil.Process:
    found = cluster.worker("w0")
    assert found
    return psutil.Process(found["pid"])


def cpu_s(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


def queued_s(process: psutil.Process) -> float:
    """How long it could have run and its core was another's: that of a process with one thread that computes."""
    return int(Path(f"/proc/{process.pid}/schedstat").read_text(encoding="ascii").split()[1]) / 1e9


def report_share(one: Cluster, bare: Connection, bodies: list[bytes], rounds: int) -> None:
    shares, cpu_shares, gateway_us, busy, queued = [], [], [], [], []
    run_load(one.url, bodies, IN_FLIGHT)
    for number in range(rounds):
        alone, alone_cpu = run_bare(bare)
        before, worker_before, queued_before = cpu_s(gateway(one)), cpu_s(worker(one)), queued_s(worker(one))
        measured = run_load(one.url, bodies, IN_FLIGHT)
        served = measured.tokens_per_s
        gateway_us.append((cpu_s(gateway(one)) - before) / len(bodies) * 1e6)
        computed = cpu_s(worker(one)) - worker_before
        busy.append(computed / measured.wall_s)
        queued.append((queued_s(worker(one)) - queued_before) / measured.wall_s)
        cpu_shares.append(served * measured.wall_s / computed / alone_cpu)
        shares.append(served / alone)
        print(f"round {number + 1}: bare {alone:.0f} tok/s, served {served:.0f}, {served / alone:.1%}", flush=True)
    print(f"served share of the bare loop: median {statistics.median(shares):.1%}, {spread(shares)}")
    print(
        f"in CPU time, which neighbours do not take: median {statistics.median(cpu_shares):.1%}, {spread(cpu_shares)}"
    )
    shown = f"{statistics.median(busy):.1%} of the time, and waited for its core for {statistics.median(queued):.1%}"
    print(f"the worker computed for {shown}; the rest it waited for work")
    print(f"gateway CPU a request: median {statistics.median(gateway_us):.0f} us")


def spread(shares: list[float]) -> str:
    return f"{min(shares):.1%}..{max(shares):.1%}"


def report_scaling(one: Cluster, two: Cluster, bodies: list[bytes], rounds: int) -> None:
    """On two cores, the client and the second gateway take their share of what both workers want."""
    run_load(two.url, bodies, IN_FLIGHT)
    ratios = []
    for _ in range(rounds):
        single = run_load(one.url, bodies, IN_FLIGHT).tokens_per_s
        ratios.append(run_load(two.url, bodies, IN_FLIGHT).tokens_per_s / single)
    print(f"two workers against one: median {statistics.median(ratios):.2f}x, {min(ratios):.2f}..{max(ratios):.2f}")


if __name__ == "__main__":
    main()
