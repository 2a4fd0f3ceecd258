"""Makes a model's memory this process's own, where the runtime has mapped it from the folder's files.

What is mapped changes with a file that is written to, and ends the process by SIGBUS where one is cut short. Copied, it
is what was verified for as long as the process lives, and its forks share it all the same.

onnxruntime 1.31.1 can also be given the files' bytes (`add_external_initializers_from_files_in_memory`), and copies
them more than once: the embedded model in fp32, in float, took 467 MB then, 817 at most, and 1.7 s; with this
386, 492 and 0.9.

The copy is asked for in pages of 2 MB, since a call streams all weights. On a busy machine a question of 20 tokens on a
kept state took, in fp32 and int8, 0.74 and 0.92 of its time with pages of 4 KB, and 0.69 and 0.50 with the files' own.
To find such pages costs 0 to 0.7 s of CPU at the start.
"""

import ctypes
import mmap
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path

from ostraka_worker.large_pages import LARGE_PAGE_BYTES

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
    for start, size in list(joined(_mapped_from({str(path.resolve()) for path in files}))):
        _replace(start, size)
        copied += size
    return copied


def _mapped_from(files: Collection[str]) -> Iterator[tuple[int, int]]:
    """(address, bytes) of each mapping, by address."""
    for line in Path("/proc/self/maps").read_text(encoding="utf-8", errors="surrogateescape").splitlines():
        place, mode, _, _, _, *path = line.split(maxsplit=5)
        if mode.startswith("r") and path and path[0] in files:
            start, end = (int(address, 16) for address in place.split("-"))
            yield start, end - start


def joined(mappings: Iterable[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Those that lie end to end as one: the runtime maps each matrix by itself, and few of them fill a large page."""
    start = end = 0
    for address, size in mappings:
        if address != end and end > start:
            yield start, end - start
        if address != end:
            start = address
        end = address + size
    if end > start:
        yield start, end - start


def _replace(start: int, size: int) -> None:
    """In one step, by a copy at the same address. It lies as far from the beginning of a page before it is moved as
    after, or its pages would be moved in pieces."""
    room = _libc.mmap(None, ctypes.c_size_t(size + LARGE_PAGE_BYTES), _PROT, _FLAGS, -1, ctypes.c_long(0))
    if room in (None, _FAILED):
        raise MemoryError(f"no {size} bytes for a copy of the model's weights")
    copy = room + (start - room) % LARGE_PAGE_BYTES
    # A kernel without large pages refuses, and small ones serve.
    _libc.madvise(ctypes.c_void_p(copy), ctypes.c_size_t(size), mmap.MADV_HUGEPAGE)
    ctypes.memmove(copy, start, size)
    sizes = ctypes.c_size_t(size), ctypes.c_size_t(size)
    moved = _libc.mremap(ctypes.c_void_p(copy), *sizes, _MREMAP_MAYMOVE | _MREMAP_FIXED, ctypes.c_void_p(start))
    if moved != start:
        raise MemoryError("the copy of the model's weights cannot take their place")
    _unmap(room, copy - room)
    _unmap(copy + size, room + LARGE_PAGE_BYTES - copy)


def _unmap(start: int, size: int) -> None:
    if size:
        _libc.munmap(ctypes.c_void_p(start), ctypes.c_size_t(size))
