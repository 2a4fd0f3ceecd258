"""Arrays in pages of 2 MB, where the system has them: what a call streams waits less for the page tables."""

import contextlib
import math
import mmap

import numpy as np
import numpy.typing as npt

LARGE_PAGE_BYTES = 2 << 20


def empty(shape: tuple[int, ...], dtype: type[np.generic]) -> npt.NDArray[np.generic]:
    """Its memory goes back to the system with it; what fills no large page is an array like any other. Raises
    MemoryError."""
    size = math.prod(shape) * np.dtype(dtype).itemsize
    if size < LARGE_PAGE_BYTES:
        return np.empty(shape, dtype)
    try:
        room = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    except OSError as bad:
        raise MemoryError(f"no {size} bytes for an array") from bad
    with contextlib.suppress(OSError):  # a kernel without them
        room.madvise(mmap.MADV_HUGEPAGE)
    return np.frombuffer(room, dtype).reshape(shape)
