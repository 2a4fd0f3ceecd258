"""What a request pays for being the first: after the start, of its length, after an idle time, and after one that was
filled with short calls. Milliseconds of inference, as `Server-Timing` has them, against the same lengths later.

    python -m benchmarks.first_request --precision int8 --clusters 4 --idle-s 12
"""

import argparse
import random
import re
import statistics
import time
from pathlib import Path

from benchmarks.load import WORDS
from ostraka_shared.model_folder import ModelFolder
from ostraka_worker.build.builder import ensure_embedded
from ostraka_worker.build.catalog import PRECISIONS
from ostraka_worker.build.progress import for_stderr
from tests.cluster import Cluster, running

LENGTHS = (8, 150, 30, 90, 15, 120, 60, 200)
"""Words of a state, in the order they are asked: about 30 to 270 tokens."""
PASSES = 4


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clusters", type=int, default=3)
    parser.add_argument("--idle-s", type=float, nargs="*", default=[12.0])
    parser.add_argument("--idle-rounds", type=int, default=6)
    parser.add_argument("--call-each-s", type=float, default=1.0)
    parser.add_argument("--precision", choices=PRECISIONS, default="int8")
    values = parser.parse_args()
    folder = ensure_embedded(Path("~/.cache/ostraka").expanduser(), values.precision, for_stderr())
    for start in ("fork", "load") if values.clusters else ():
        report_start(folder, start, values.clusters)
    with running(folder.path, "--workers=1", "--state-cache=0") as cluster:
        for idle_s in values.idle_s:
            report_idle(cluster, idle_s, values.idle_rounds, values.call_each_s)


def report_start(folder: ModelFolder, start: str, clusters: int) -> None:
    """Each length once a pass, in fresh words; the last passes are what it costs in the end."""
    first, early, late = [], [], []
    for _ in range(clusters):
        with running(folder.path, "--workers=1", "--state-cache=0", f"--worker-start={start}") as cluster:
            passes = [[ask(cluster, words) for words in LENGTHS] for _ in range(PASSES)]
        ends = [statistics.median(each[place] for each in passes[1:]) for place in range(len(LENGTHS))]
        first.append(passes[0][0] - ends[0])
        early += [passes[0][place] - ends[place] for place in range(1, len(LENGTHS))]
        late += [passes[-1][place] - ends[place] for place in range(1, len(LENGTHS))]
    print(
        f"{folder.spec.precision} {start}: the very first request {spread(first)} ms more than later of its length,"
        f" the first of another length {spread(early)}; for comparison the last {spread(late)}",
        flush=True,
    )


def report_idle(cluster: Cluster, idle_s: float, rounds: int, call_each_s: float) -> None:
    """Idle times with nothing in them, and with a short call now and then, in turn."""
    base: list[float] = []
    extra: dict[bool, list[float]] = {False: [], True: []}
    for is_kept_warm in (False, True) * rounds:
        ends = time.monotonic() + idle_s
        while (left_s := ends - time.monotonic()) > 0:
            time.sleep(min(left_s, call_each_s if is_kept_warm else idle_s))
            if is_kept_warm and time.monotonic() < ends:
                ask(cluster, 1)
        after_idle = ask(cluster, LENGTHS[0])
        base.append(statistics.median(ask(cluster, LENGTHS[0]) for _ in range(9)))
        extra[is_kept_warm].append(after_idle - base[-1])
    print(
        f"after {idle_s:g} s idle: {spread(extra[False])} ms more than right after another, which takes"
        f" {statistics.median(base):.1f}; with a short call each {call_each_s:g} s {spread(extra[True])}",
        flush=True,
    )


def ask(cluster: Cluster, words: int) -> float:
    """Inference time of one new state."""
    state = " ".join(random.choices(WORDS, k=words))
    response = cluster.decide(state)
    assert response.status_code == 200
    found = re.search(r"inference;dur=([\d.]+)", response.headers["server-timing"])
    assert found
    return float(found.group(1))


def spread(values: list[float]) -> str:
    return f"{statistics.median(values):+.1f} ({min(values):+.1f}..{max(values):+.1f})"


if __name__ == "__main__":
    main()
