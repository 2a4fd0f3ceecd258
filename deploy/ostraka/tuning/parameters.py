"""What is trained, by the names of an adapter's file: halves of changes, gains, the answers' rows. No PyTorch."""

from collections.abc import Mapping
from math import sqrt

import numpy as np

from ostraka_worker.build.adapter_file import ANSWERS, Changes, adapted_linears, adapted_norms
from ostraka_worker.build.decoder import Checkpoint, Config, Tensor

LOW, HIGH = ".lora_a", ".lora_b"
Parameters = Mapping[str, Tensor]


def fresh_parameters(
    checkpoint: Checkpoint, config: Config, rank: int, answer_token_ids: tuple[int, int], seed: int
) -> dict[str, Tensor]:
    """Those that change nothing yet: B is zero."""
    random = np.random.default_rng(seed)
    parameters = {name: checkpoint.tensors[name] for name in adapted_norms(config)}
    parameters[ANSWERS] = checkpoint.head_rows(answer_token_ids)
    for name, (outputs, inputs) in adapted_linears(config).items():
        parameters[name + LOW] = (random.standard_normal((rank, inputs)) / sqrt(inputs)).astype(np.float32)
        parameters[name + HIGH] = np.zeros((outputs, rank), np.float32)
    return parameters


def parameters_of(changes: Changes) -> dict[str, Tensor]:
    halves = {name + LOW: a for name, (a, _) in changes.low_rank.items()}
    halves |= {name + HIGH: b for name, (_, b) in changes.low_rank.items()}
    return halves | dict(changes.gains) | {ANSWERS: changes.answers}


def changes_of(parameters: Parameters, config: Config, temperature: float) -> Changes:
    """Margins are divided by the temperature, in the answers' rows."""
    low_rank = {name: (parameters[name + LOW], parameters[name + HIGH]) for name in adapted_linears(config)}
    gains = {name: parameters[name] for name in adapted_norms(config)}
    return Changes(low_rank, gains, parameters[ANSWERS] / np.float32(temperature))
