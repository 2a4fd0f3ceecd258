"""The memory of N workers that have answered, forked from one zygote against loaded each, and how soon a killed one is
replaced.

    python -m benchmarks.worker_memory                         # memory of 1, 2, 8, 16 workers in fp32 and int8
    python -m benchmarks.worker_memory --replacements 5        # from kill -9 to READY, in so many clusters of two
"""

import argparse
import os
import random
import signal
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Self

import numpy as np
import psutil
import zmq

from ostraka.children import Child
from ostraka.forking import Zygote
from ostraka.restarts import RestartPolicy
from ostraka_shared.codec import decode, encode
from ostraka_shared.messages import Ready, Result, Work
from ostraka_shared.model_folder import ModelFolder
from ostraka_shared.options import to_flags
from ostraka_worker.build.builder import ensure_embedded
from ostraka_worker.build.catalog import PRECISIONS
from ostraka_worker.build.progress import for_stderr
from ostraka_worker.config import StateCacheConfig, WorkerConfig, ZygoteConfig
from tests.cluster import Cluster, running

COUNTS = (1, 2, 8, 16)
STARTS = ("fork", "load")
REQUESTS = ((8, 32), (2, 128), (1, 256), (1, 20))
"""What each worker answers before it is measured, as (prompts, tokens each); nothing of it is kept."""
PATIENCE_MS = 240_000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--counts", type=int, nargs="*", default=COUNTS)
    parser.add_argument("--precision", choices=PRECISIONS, nargs="*", default=PRECISIONS)
    parser.add_argument("--replacements", type=int, default=0, metavar="CLUSTERS")
    values = parser.parse_args()
    for precision in values.precision:
        folder = ensure_embedded(Path("~/.cache/ostraka").expanduser(), precision, for_stderr())
        for start in STARTS:
            if values.replacements:
                report_replacements(folder, start, values.replacements)
            else:
                report_memory(folder, start, values.counts)


def report_memory(folder: ModelFolder, start: str, counts: list[int]) -> None:
    for count in counts:
        with tempfile.TemporaryDirectory() as run_dir, Crowd(folder, Path(run_dir)) as crowd:
            crowd.start(count, is_forked=start == "fork")
            pss, private_dirty = map(sum, zip(*map(memory_mb, crowd.processes()), strict=True))
            print(
                f"{folder.spec.precision} {start} {count:2} worker(s), {len(crowd.processes())} processes:"
                f" PSS {pss:6.0f} MB, private dirty {private_dirty:6.0f} MB",
                flush=True,
            )


def memory_mb(process: psutil.Process) -> tuple[float, float]:
    fields = {}
    for line in Path(f"/proc/{process.pid}/smaps_rollup").read_text(encoding="ascii").splitlines()[1:]:
        name, kilobytes = line.split()[:2]
        fields[name] = int(kilobytes) / 1024
    return fields["Pss:"], fields["Private_Dirty:"]


class Crowd:
    """Workers, and a socket in a gateway's place that has each of them answer."""

    def __init__(self, folder: ModelFolder, run_dir: Path) -> None:
        self._folder = folder
        self._endpoint = f"ipc://{run_dir}/workers.sock"
        self._context = zmq.Context()
        self._socket = self._context.socket(zmq.ROUTER)
        self._socket.bind(self._endpoint)
        self._zygote = Zygote("zygote", self._zygote_command, RestartPolicy(random.random))
        self._workers: list[Child] = []

    def __enter__(self) -> Self:
        return self

    def start(self, count: int, *, is_forked: bool) -> None:
        if is_forked:
            self._zygote.start()
        cores = sorted(os.sched_getaffinity(0))
        for number in range(count):
            fork_from = self._zygote.fork if is_forked else None
            command = self._worker_command(f"w{number}", cores[number % len(cores)])
            worker = Child(f"w{number}", command, RestartPolicy(random.random), fork_from=fork_from)
            worker.start()
            self._workers.append(worker)
        self._have_all_answer(count)

    def processes(self) -> list[psutil.Process]:
        """Of all workers, the zygote and its spare."""
        return list(psutil.Process().children())

    def _have_all_answer(self, count: int) -> None:
        unanswered = set[tuple[bytes, str]]()
        ready = 0
        while ready < count or unanswered:
            for worker in self._workers:
                worker.reap()  # a fork waits for its "go"
            if not self._socket.poll(20):
                continue
            identity, frame = self._socket.recv_multipart()
            message = decode(frame)
            if isinstance(message, Ready):
                ready += 1
                for work in make_works():
                    unanswered.add((identity, work.request_id))
                    self._socket.send_multipart((identity, encode(work)))
            elif isinstance(message, Result):
                unanswered.remove((identity, message.request_id))

    def _zygote_command(self, _: int) -> list[str]:
        config = ZygoteConfig(str(self._folder.path), self._zygote.pass_fds[0], log_level="error")
        return ["-m", "ostraka_worker.zygote", *to_flags(config)]

    def _worker_command(self, name: str, core: int) -> Callable[[int], list[str]]:
        cache = StateCacheConfig(state_cache=0)
        config = WorkerConfig(
            (self._endpoint,), str(self._folder.path), name, cores=(core,), cache=cache, log_level="error"
        )
        return lambda _: ["-m", "ostraka_worker", *to_flags(config)]

    def __exit__(self, *_: object) -> None:
        self._zygote.hang_up()
        for child in (self._zygote, *self._workers):
            child.send(signal.SIGKILL)
            if child.process:
                child.process.wait()
        while spares := psutil.Process().children():
            psutil.wait_procs(spares, timeout=10)
        self._socket.close(linger=0)
        self._context.term()


def make_works() -> list[Work]:
    rng = np.random.default_rng(1)
    return [
        Work(f"{prompts}x{tokens}", 1, PATIENCE_MS, b"", tuple(suffixes(rng, prompts, tokens)))
        for prompts, tokens in REQUESTS
    ]


def suffixes(rng: np.random.Generator, prompts: int, tokens: int) -> Iterator[bytes]:
    for _ in range(prompts):
        yield rng.integers(0, 49_000, tokens).astype("<u4").tobytes()


def report_replacements(folder: ModelFolder, start: str, clusters: int) -> None:
    taken = []
    for _ in range(clusters):
        with running(folder.path, "--workers=2", f"--worker-start={start}") as cluster:
            taken += [replace(cluster, name) for name in ("w0", "w1")]
    shown = ", ".join(f"{each:.0f}" for each in sorted(taken))
    print(f"{folder.spec.precision} {start}: kill -9 to READY {statistics.median(taken):.0f} ms ({shown})", flush=True)


def replace(cluster: Cluster, name: str) -> float:
    """Milliseconds from the kill to the gateway's READY, each by the same clock; only a first death is made good at
    once, so each worker dies once."""
    worker = cluster.worker(name)
    assert worker
    seen = len(cluster.events)
    begun = time.time()
    os.kill(worker["pid"], signal.SIGKILL)
    while not (ready := [e for e in cluster.events[seen:] if e["event"] == "worker_ready" and e["worker"] == name]):
        time.sleep(0.01)
    return (datetime.fromisoformat(ready[0]["timestamp"]).timestamp() - begun) * 1000


if __name__ == "__main__":
    main()
