"""The bare engine by the shape of what it reads, in process CPU time, in interleaved rounds; compare within a run only.

python -m benchmarks.engine_shapes                    # int8 against fp32, kept states, trees, what keeping costs
python -m benchmarks.engine_shapes --longest          # one prompt of 8,192 tokens: its time and peak memory
"""

import argparse
import resource
import statistics
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np

from benchmarks.gemm_peak import measure_peak
from ostraka_shared.messages import Work
from ostraka_worker.build.builder import ensure_embedded
from ostraka_worker.build.catalog import DEFAULT_PRECISION, PRECISIONS
from ostraka_worker.build.progress import for_stderr
from ostraka_worker.config import DEFAULT_BATCH_TOKENS
from ostraka_worker.engine import Engine, Line
from ostraka_worker.engines import load_engine
from ostraka_worker.inference import BatchRun
from ostraka_worker.own_memory import own_mapped
from ostraka_worker.snapshots import Snapshots

SHAPES = ((1, 20), (1, 32), (8, 32), (1, 128), (2, 128), (1, 256))
STATE_TOKENS, QUESTION_TOKENS = 500, 20
VOCABULARY = 49_000
LINEAR_GFLOP = 2 * 16 * 3_538_944 / 1e9
"""A token's linear layers in the embedded model."""
Timed = dict[str, Callable[[], object]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--precision", choices=PRECISIONS, default=DEFAULT_PRECISION)
    parser.add_argument("--cache-dir", type=Path, default=Path("~/.cache/ostraka"))
    parser.add_argument("--only-states", action="store_true")
    parser.add_argument("--longest", action="store_true")
    values = parser.parse_args()
    chosen = (values.precision,) if values.longest or values.only_states else PRECISIONS
    engines = {each: load(values.cache_dir.expanduser(), each) for each in chosen}
    if values.longest:
        report_longest(engines[values.precision])
        return
    if not values.only_states:
        report_precisions(engines, values.rounds)
    report_states(engines[values.precision], values.rounds)
    report_keeping(engines[values.precision], values.rounds)


def load(cache_dir: Path, precision: str) -> Engine:
    """With its weights where a forked worker has them."""
    folder = ensure_embedded(cache_dir, precision, for_stderr())
    engine = load_engine(folder, threads=1)
    own_mapped(folder.path / name for name in folder.hashes)
    return engine


def report_precisions(engines: dict[str, Engine], rounds: int) -> None:
    """Also as a share of what the matrix products alone would allow: the rest is attention and small steps."""
    peaks = {name: measure_peak(name) for name in engines}
    shown = ", ".join(f"{name} {peak:.0f} G/s" for name, peak in peaks.items())
    print(f"matrix products alone: {shown}; at that rate a token's linear layers would be all of its time")
    for prompts, tokens in SHAPES:
        lines = [Line(random_tokens(number, tokens)) for number in range(prompts)]
        taken = measure({name: partial(engine.run, lines) for name, engine in engines.items()}, rounds)
        shown = ", ".join(f"{name} {prompts * tokens / seconds:.0f} tok/s" for name, seconds in taken.items())
        work = prompts * tokens * LINEAR_GFLOP
        shares = ", ".join(f"{name} {work / seconds / peaks[name]:.0%}" for name, seconds in taken.items())
        print(f"{prompts} x {tokens}: {shown}, int8 : fp32 {taken['fp32'] / taken['int8']:.2f}; of the peak: {shares}")


def report_states(engine: Engine, rounds: int) -> None:
    """One and four questions on a state of 500 tokens, read for the first time and kept before."""
    warm = Snapshots(4, 4096)
    answer(engine, [ask(0, 1)], warm)
    taken = measure(
        {
            "1 question, cold": lambda: answer(engine, [ask(0, 1)], Snapshots(4, 4096)),
            "4 questions, cold": lambda: answer(engine, [ask(0, 4)], Snapshots(4, 4096)),
            "1 question, warm": lambda: answer(engine, [ask(0, 1)], warm),
            "4 questions, warm": lambda: answer(engine, [ask(0, 4)], warm),
            "4 requests, warm": lambda: answer(engine, [ask(0, 1, number) for number in range(4)], warm),
            "no state": lambda: engine.run([Line(random_tokens(1, QUESTION_TOKENS))]),
        },
        rounds,
    )
    for name, seconds in taken.items():
        print(f"{name}: {seconds * 1000:.1f} ms")
    cold = taken["1 question, cold"]
    print(f"cold : warm {cold / taken['1 question, warm']:.1f}; 4 : 1 cold {taken['4 questions, cold'] / cold:.2f}")


def report_keeping(engine: Engine, rounds: int) -> None:
    """Requests of one question on states that never come back: what it costs to keep each for nothing."""
    for tokens in (60, 200):
        works = [ask(number, 1, state_tokens=tokens) for number in range(12)]
        taken = measure(
            {
                "kept": lambda works=works: answer(engine, works, Snapshots(16, 8192)),
                "not kept": lambda works=works: answer(engine, works, None),
            },
            rounds,
        )
        print(f"12 states of {tokens} tokens: keeping them costs {taken['kept'] / taken['not kept'] - 1:+.1%}")


def report_longest(engine: Engine) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    begun = time.process_time()
    answer(engine, [ask(0, 1, state_tokens=8192 - QUESTION_TOKENS)], Snapshots(1, 8192))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    seconds = time.process_time() - begun
    print(
        f"8192 tokens: {seconds:.0f} s, peak {peak / 1024:.0f} MB, {(peak - before) / 1024:.0f} MB of it to read them"
    )


def measure(timed: Timed, rounds: int) -> dict[str, float]:
    """The median of each in seconds of CPU time, after one run that does not count."""
    taken: dict[str, list[float]] = {name: [] for name in timed}
    for number in range(rounds + 1):
        for name, run in timed.items():
            begun = time.process_time()
            run()
            if number:
                taken[name].append(time.process_time() - begun)
    return {name: statistics.median(seconds) for name, seconds in taken.items()}


def ask(state: int, questions: int, first: int = 0, state_tokens: int = STATE_TOKENS) -> Work:
    rests = tuple(random_tokens(1000 + first + n, QUESTION_TOKENS).tobytes() for n in range(questions))
    return Work("", 1, 1, random_tokens(state, state_tokens).tobytes(), rests, state_tokens)


def answer(engine: Engine, works: list[Work], snapshots: Snapshots | None) -> None:
    run = BatchRun(works, DEFAULT_BATCH_TOKENS, snapshots)
    for call in run.calls:
        run.run(engine, call)
    if run.failures:
        raise RuntimeError(str(run.failures))


def random_tokens(seed: int, count: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, VOCABULARY, count).astype("<u4")


if __name__ == "__main__":
    main()
