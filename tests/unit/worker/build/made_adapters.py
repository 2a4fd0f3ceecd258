"""Adapters of random changes, for small checkpoints."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from ostraka_worker.build import builder
from ostraka_worker.build.adapter_file import (
    Adapter,
    AdapterRecord,
    Changes,
    adapted_linears,
    adapted_norms,
    read_adapter,
    write_adapter,
)
from ostraka_worker.build.checkpoint import read_checkpoint
from ostraka_worker.build.decoder import Checkpoint
from ostraka_worker.build.progress import Silent

RANK = 8


def random_changes(checkpoint: Checkpoint, layers: int, seed: int = 3, spread: float = 0.1) -> Changes:
    random = np.random.default_rng(seed)
    config = replace(checkpoint.config, layers=layers)

    def draw(*shape: int, around: float = 0.0) -> np.ndarray:
        return random.normal(around, spread, shape).astype(np.float32)

    linears = adapted_linears(config).items()
    return Changes(
        {name: (draw(RANK, inputs), draw(outputs, RANK)) for name, (outputs, inputs) in linears},
        {name: draw(config.hidden, around=1.0) for name in adapted_norms(config)},
        draw(2, config.hidden),
    )


def record_of(source: Path, **changed: Any) -> AdapterRecord:
    base = builder.describe_source(source, Silent())["sha256"]
    return replace(AdapterRecord("tuned", base, 2, RANK, "0", "1", {"seed": 1}), **changed)


def write(path: Path, source: Path, **changed: Any) -> Adapter:
    record = record_of(source, **changed)
    write_adapter(path, record, random_changes(read_checkpoint(source, Silent()), min(record.layers, 2)))
    return read_adapter(path)
