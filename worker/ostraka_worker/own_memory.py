"""Makes a model's memory this process's own, where the runtime has mapped it from the folder's files.

What is mapped changes with a file that is written to, and ends the process by SIGBUS where one is cut short. Copied, it
is what was verified for as long as the process lives, and its forks share it all the same.

onnxruntime 1.31.1 can also be given the files' bytes (`add_external_initializers_from_files_in_memory`), and copies
them more than once: the embedded model in fp32 takes 467 MB then, 817 at most, and 1.7 s; with this 386, 492 and 0.9.
"""

import ctypes
import mmap
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path

_PROT = mmap.PROT_READ | mmap.PROT_WRITE
_FLAGS = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
_MREMAP_MAYMOVE, _MREMAP_FIXED = 1, 2  # <sys/mman.h>, which Python lacks
_FAILED = ctypes.c_void_p(-1).value
_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = _libc.mremap.restype = ctypes.c_void_p


def own_mapped(files: Iterable[Path]) -> int:
    """Bytes copied. To be called while nothing else runs in this process, which only reads what is mapped. Raises
    MemoryError."""
    copied = 0
    for start, size in list(_mapped_from({str(path.resolve()) for path in files})):
        _replace(start, size)
        copied += size
    return copied


def _mapped_from(files: Collection[str]) -> Iterator[tuple[int, int]]:
    """(address, bytes) of each mapping."""
    for line in Path("/proc/self/maps").read_text(encoding="utf-8", errors="surrogateescape").splitlines():
        place, mode, _, _, _, *path = line.split(maxsplit=5)
        if mode.startswith("r") and path and path[0] in files:
            start, end = (int(address, 16) for address in place.split("-"))
            yield start, end - start


def _replace(start: int, size: int) -> None:
    """In one step, by a copy at the same address."""
    copy = _libc.mmap(None, ctypes.c_size_t(size), _PROT, _FLAGS, -1, ctypes.c_long(0))
    if copy in (None, _FAILED):
        raise MemoryError(f"no {size} bytes for a copy of the model's weights")
    ctypes.memmove(copy, start, size)
    sizes = ctypes.c_size_t(size), ctypes.c_size_t(size)
    moved = _libc.mremap(ctypes.c_void_p(copy), *sizes, _MREMAP_MAYMOVE | _MREMAP_FIXED, ctypes.c_void_p(start))
    if moved != start:
        raise MemoryError("the copy of the model's weights cannot take their place")
