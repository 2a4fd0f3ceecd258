"""bfloat16: the upper half of a float32. numpy has no such type; its bits are a uint16's."""

import numpy as np
import numpy.typing as npt

from ostraka_worker.build.decoder import Tensor

Halves = npt.NDArray[np.uint16]


def rounded(values: Tensor) -> Tensor:
    """The nearest that bfloat16 holds, of two the even one. In place of what is beyond its range, infinity."""
    bits = values.view(np.uint32)
    halves = bits + (np.uint32(0x7FFF) + ((bits >> 16) & 1))
    return (halves & np.uint32(0xFFFF0000)).view(np.float32)


def widened(halves: Halves) -> Tensor:
    return (halves.astype(np.uint32) << 16).view(np.float32)


def as_bf16(values: Tensor) -> Halves:
    """Raises ValueError where a value is not one of bfloat16's: an answer would be another than the plain graph's."""
    halves = np.ascontiguousarray(values, "<f4").view("<u2")  # no copy of the whole beside it
    if halves[..., ::2].any():
        raise ValueError("bfloat16 does not hold these values: round them before any graph is written")
    return halves[..., 1::2].copy()
