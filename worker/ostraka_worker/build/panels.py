"""Weights in the order in which the kernels read them (kernels/linear.h): straight from the file, as it is mapped."""

from typing import TypeVar

import numpy as np
import numpy.typing as npt

Kind = TypeVar("Kind", bound=np.generic)
Int8s = npt.NDArray[np.int8]
Halves = npt.NDArray[np.uint16]
Floats = npt.NDArray[np.float32]

PANEL = 32
"""Outputs whose weights lie together."""
TILE_OUTPUTS, STEP_INPUTS, GROUP = 16, 64, 4
"""A tile has 16 groups of 4 inputs, for 16 outputs each; in bfloat16, of 2."""
PAIR = 2


def in_panels(weight: Floats) -> Floats:
    """Of [out, in], out a multiple of PANEL: [panels, in * PANEL]."""
    outer, inner = weight.shape
    return np.ascontiguousarray(weight.reshape(-1, PANEL, inner).transpose(0, 2, 1)).reshape(outer // PANEL, -1)


def in_tiles(weight: Int8s) -> Int8s:
    """Of [out, in], out a multiple of PANEL: [panels, steps * 2 tiles]; past the last input there are zeros."""
    outer, inner = weight.shape
    padded = np.zeros((outer, -(-inner // STEP_INPUTS) * STEP_INPUTS), np.int8)
    padded[:, :inner] = weight
    return _tiled(padded, GROUP)


def offsets(weight: Int8s) -> npt.NDArray[np.int32]:
    """Of [out, in]: what an output's sum begins with where rows are shifted by 128 (kernels/linear_vnni.c)."""
    begun: npt.NDArray[np.int32] = -128 * weight.sum(axis=1, dtype=np.int32)
    return begun


def in_half_tiles(weight: Halves) -> Halves:
    """Of [out, in] in bfloat16, out and in multiples of PANEL: [panels, steps * 2 tiles]."""
    return _tiled(weight, PAIR)


def _tiled(weight: npt.NDArray[Kind], group: int) -> npt.NDArray[Kind]:
    outer = len(weight)
    parts = weight.reshape(outer // PANEL, 2, TILE_OUTPUTS, -1, TILE_OUTPUTS, group)
    return np.ascontiguousarray(parts.transpose(0, 3, 1, 4, 2, 5)).reshape(outer // PANEL, -1)


def in_turn(gate: npt.NDArray[Kind], through: npt.NDArray[Kind]) -> npt.NDArray[Kind]:
    """16 rows of the one, 16 of the other: what a gate lets through is multiplied while both are at hand."""
    rows, *rest = gate.shape
    parts = [each.reshape(rows // TILE_OUTPUTS, TILE_OUTPUTS, *rest) for each in (gate, through)]
    return np.stack(parts, axis=1).reshape(2 * rows, *rest)
