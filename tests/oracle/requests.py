"""A few hundred requests of every form, always the same, and their answers with nothing shared, kept, cut or batched."""

import json
import sys
from pathlib import Path

import numpy as np

from ostraka_shared.messages import Work
from ostraka_worker.engine import Engine, Line
from ostraka_worker.onnx_engine import OnnxEngine
from ostraka_worker.scoring import p_yes

COUNT = 220
VOCABULARY = 260
STATE_TOKENS = (0, 5, 31, 32, 33, 64, 90, 150, 257, 400)
Answers = list[tuple[float, ...]]


def make_works(count: int = COUNT, vocabulary: int = VOCABULARY, seed: int = 17) -> list[Work]:
    """States often begin alike, and some come back; a third of the requests ask a single question."""
    random = np.random.default_rng(seed)
    root = random.integers(0, vocabulary, max(STATE_TOKENS))
    return [_make_work(f"r{number}", root, vocabulary, random) for number in range(count)]


def _make_work(name: str, root: np.ndarray, vocabulary: int, random: np.random.Generator) -> Work:
    tokens = int(random.choice(STATE_TOKENS))
    own = int(random.choice([0, 0, tokens // 3, tokens]))
    state = np.concatenate([root[: tokens - own], random.integers(0, vocabulary, own)])
    count = int(random.choice([1, 1, 2, 3, 7]))
    bodies = random.integers(0, vocabulary, (2, int(random.choice([0, 4, 20, 40]))))
    shared = bodies[0] if count > 1 and random.random() < 0.5 else bodies[0][:0]
    rests = [
        [*bodies[random.integers(2)], *random.integers(0, vocabulary, random.integers(1, 30))] for _ in range(count)
    ]
    prefix = np.concatenate([state, shared]).astype("<u4").tobytes()
    return Work(name, 1, 60_000, prefix, tuple(np.array(rest, "<u4").tobytes() for rest in rests), tokens)


def answers_alone(engine: Engine, works: list[Work]) -> Answers:
    """Each prompt whole, in a call of its own."""
    return [
        tuple(p_yes(engine.run([Line(np.frombuffer(work.prefix + suffix, "<u4"))]))[0] for suffix in work.suffixes)
        for work in works
    ]


if __name__ == "__main__":
    print(json.dumps(answers_alone(OnnxEngine(Path(sys.argv[1])), make_works())))  # noqa: T201
