"""Does memory stay flat? Mixed requests in batches through the planner, the cache and the engine; the resident memory
now and then, and what it gains over its later half.

python -m benchmarks.engine_memory                                     # 100,000 requests, a random model of two layers
python -m benchmarks.engine_memory --embedded int8                     # 10,000 requests: 4 to 15 minutes
"""

import argparse
import gc
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import psutil

from benchmarks.faults.trend import gain
from ostraka_shared.messages import Work
from ostraka_worker.build.builder import ensure_embedded
from ostraka_worker.build.catalog import PRECISIONS
from ostraka_worker.build.checkpoint import read_checkpoint
from ostraka_worker.build.graph import write_graph
from ostraka_worker.build.progress import Silent, for_stderr
from ostraka_worker.config import DEFAULT_BATCH_TOKENS
from ostraka_worker.engine import Engine
from ostraka_worker.inference import BatchRun
from ostraka_worker.kernels import best_graph
from ostraka_worker.onnx_engine import OnnxEngine
from ostraka_worker.snapshots import Snapshots
from tests.unit.worker.build.tiny import write_tiny

RANDOM_REQUESTS, EMBEDDED_REQUESTS = 100_000, 10_000
"""The embedded model in int8 answers 10 to 43 of them a second, as busy as the machine is: 100,000 take hours.
Of 2,000 the slope is known to 3,500 MB in 100,000, of 10,000 to 325."""
VOCABULARY = 260
SAMPLES = 200
UNIT = 100_000


@dataclass(frozen=True, slots=True)
class Flatness:
    """Resident megabytes: at the first and the last sample, and what the later half gains in 100,000 requests, with
    half its interval of 95 %."""

    first_mb: float
    last_mb: float
    slope_mb: float
    doubt_mb: float


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, help=f"default: {RANDOM_REQUESTS}, {EMBEDDED_REQUESTS} with --embedded")
    parser.add_argument("--embedded", choices=PRECISIONS, help="the embedded model, instead of a random one")
    values = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        engine = load(Path(folder), values.embedded)
    requests = values.requests or (EMBEDDED_REQUESTS if values.embedded else RANDOM_REQUESTS)
    begun = time.monotonic()
    found = measure(engine, requests, tell=tell)
    took = time.monotonic() - begun
    print(f"{requests} requests in {took:.0f} s: {found.first_mb:.1f} MB at first, {found.last_mb:.1f} MB at last")
    print(f"later half: {found.slope_mb:+.2f} +- {found.doubt_mb:.2f} MB in 100,000 requests")


def load(folder: Path, embedded: str | None) -> Engine:
    if embedded:
        graph = ensure_embedded(Path("~/.cache/ostraka").expanduser(), embedded, for_stderr()).graph
    else:
        checkpoint = read_checkpoint(write_tiny(folder / "tiny.gguf", head_dims=32), Silent())
        write_graph(checkpoint, (15, 16), "int8", folder, Silent())
        graph = folder / "model.onnx"
    return OnnxEngine(best_graph(graph, {each.name for each in graph.parent.iterdir()}))


def tell(done: int, resident_mb: float) -> None:
    print(f"\r{done} requests, {resident_mb:.1f} MB", end="", file=sys.stderr, flush=True)


def measure(
    engine: Engine, requests: int, most_samples: int = SAMPLES, tell: Callable[[int, float], None] = lambda *_: None
) -> Flatness:
    """A sample costs a garbage collection, some 15 ms; each is told."""
    snapshots = Snapshots(16, 4096)
    process = psutil.Process()
    done, samples = 0, list[tuple[int, float]]()
    for batch in batches(requests):
        run = BatchRun(batch, DEFAULT_BATCH_TOKENS, snapshots)
        for call in run.calls:
            run.run(engine, call)
        assert not run.failures
        done += len(batch)
        if done >= (len(samples) + 1) * requests / most_samples:
            gc.collect()
            samples.append((done, process.memory_info().rss / 1e6))
            tell(*samples[-1])
    return fit(samples)


def batches(requests: int) -> Iterator[list[Work]]:
    """One to eight requests each. A third of the states come back; one in two hundred is long, with many questions."""
    random = np.random.default_rng(11)
    known = [random_tokens(random, int(random.integers(32, 400))) for _ in range(40)]
    while requests > 0:
        batch = [make_work(random, known) for _ in range(min(requests, int(random.integers(1, 9))))]
        requests -= len(batch)
        yield batch


def make_work(random: np.random.Generator, known: list[bytes]) -> Work:
    is_rare = random.random() < 1 / 200
    tokens = int(random.integers(300, 480)) if is_rare else int(random.integers(4, 120))
    state = known[random.integers(len(known))] if random.random() < 1 / 3 else random_tokens(random, tokens)
    count = int(random.integers(8, 30)) if is_rare else int(random.choice([1, 1, 1, 2, 4]))
    rests = tuple(random_tokens(random, int(random.integers(2, 30))) for _ in range(count))
    return Work("r", 1, 60_000, state, rests, len(state) // 4)


def random_tokens(random: np.random.Generator, count: int) -> bytes:
    return random.integers(0, VOCABULARY, count).astype("<u4").tobytes()


def fit(samples: list[tuple[int, float]]) -> Flatness:
    later = gain([samples[len(samples) // 2 :]]).times(UNIT)
    return Flatness(samples[0][1], samples[-1][1], later.rate, later.doubt)


if __name__ == "__main__":
    main()
