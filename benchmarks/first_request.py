"""What a request pays for being the first: after the start, of its length, after an idle time, with and without
idle calls. Milliseconds of inference, as `Server-Timing` has them, against the same lengths later.

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
from ostraka_worker.config import DEFAULT_IDLE_CALL_S
from tests.cluster import Cluster, running

LENGTHS = (8, 150, 30, 90, 15, 120, 60, 200)
"""Words of a state, in the order they are asked: about 30 to 270 tokens."""
PASSES = 4


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clusters", type=int, default=3)
    parser.add_argument("--idle-s", type=float, nargs="*", default=[12.0])
    parser.add_argument("--idle-rounds", type=int, default=6)
    parser.add_argument("--idle-call-s", type=float, default=DEFAULT_IDLE_CALL_S)
    parser.add_argument("--precision", choices=PRECISIONS, default="int8")
    values = parser.parse_args()
    folder = ensure_embedded(Path("~/.cache/ostraka").expanduser(), values.precision, for_stderr())
    for start in ("fork", "load") if values.clusters else ():
        report_start(folder, start, values.clusters)
    for idle_s in values.idle_s:
        report_idle(folder, idle_s, values.idle_rounds, values.idle_call_s)


def report_start(folder: ModelFolder, start: str, clusters: int) -> None:
    """Each length once a pass, in fresh words; the last passes are what it costs in the end."""
    first, early, late = [], [], []
    for _ in range(clusters):
        flags = ("--workers=1", "--state-cache=0", f"--worker-start={start}", "--idle-call-s=0")
        with running(folder.path, *flags) as cluster:
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


def report_idle(folder: ModelFolder, idle_s: float, rounds: int, idle_call_s: float) -> None:
    """In turn, each in a cluster that has the machine to itself: the calls of one would disturb the rest of another."""
    base: list[float] = []
    extra: dict[float, list[float]] = {0.0: [], idle_call_s: []}
    for each_s in (0.0, idle_call_s) * rounds:
        with running(folder.path, "--workers=1", "--state-cache=0", f"--idle-call-s={each_s}") as cluster:
            for words in LENGTHS:
                ask(cluster, words)
            time.sleep(idle_s)
            after_idle = ask(cluster, LENGTHS[0])
            base.append(statistics.median(ask(cluster, LENGTHS[0]) for _ in range(9)))
            extra[each_s].append(after_idle - base[-1])
    print(
        f"{folder.spec.precision}, after {idle_s:g} s idle: {spread(extra[0.0])} ms more than right after another,"
        f" which takes {statistics.median(base):.1f}; with a call each {idle_call_s:g} s {spread(extra[idle_call_s])}",
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
