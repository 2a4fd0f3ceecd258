"""The memory of all processes of a server that has answered, and the CPU they take while nobody asks.

python -m benchmarks.cluster_memory --gateways 1 2
"""

import argparse
import time
from pathlib import Path

import psutil

from benchmarks.worker_memory import memory_mb
from ostraka_worker.build.builder import ensure_embedded
from ostraka_worker.build.catalog import PRECISIONS
from ostraka_worker.build.progress import for_stderr
from tests.cluster import Cluster, running

REQUESTS = 40
IDLE_S = 10.0


def main() -> None:
    values = parse_arguments()
    model = ensure_embedded(Path("~/.cache/ostraka").expanduser(), values.precision, for_stderr())
    for count in values.gateways:
        with running(model.path, f"--workers={values.workers}", f"--gateways={count}") as cluster:
            report(cluster, count)


def report(cluster: Cluster, gateways: int) -> None:
    for number in range(REQUESTS):
        cluster.decide(f"state number {number} " * 10)
    supervisor = psutil.Process(cluster.process.pid)
    processes = [supervisor, *supervisor.children(recursive=True)]
    rows = [(process.name(), *memory_mb(process)) for process in processes]
    before = cpu_s(processes)
    time.sleep(IDLE_S)
    idle = (cpu_s(processes) - before) / IDLE_S
    for name, pss, private_dirty in rows:
        print(f"  {name:16} PSS {pss:6.1f} MB, private dirty {private_dirty:6.1f} MB")
    pss, private_dirty = (sum(row[place] for row in rows) for place in (1, 2))
    print(
        f"{gateways} gateway(s): PSS {pss:.0f} MB, private dirty {private_dirty:.0f} MB, idle CPU {idle:.1%} of a core"
    )


def cpu_s(processes: list[psutil.Process]) -> float:
    return sum(sum(process.cpu_times()[:2]) for process in processes)


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gateways", type=int, nargs="*", default=(1, 2))
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--precision", choices=PRECISIONS, default="int8")
    return parser.parse_args()


if __name__ == "__main__":
    main()
