"""Our own attention and layers, in C, as operators of ONNX Runtime: which of them can run here.

build.py makes the library where there is a compiler; without it, or on another CPU, the graph of the runtime's own
operators serves.
"""

import ctypes
import struct
from collections.abc import Container
from functools import cache
from pathlib import Path

import structlog

log = structlog.get_logger()

ELF_HEADER = struct.Struct("<40xQ10xHH2x")
"""Of 64 bits: where the table of sections begins, a file's last part; the size of an entry, and how many there are."""
LIBRARY = Path(__file__).with_name("kernels.so")
CPU_INFO = Path("/proc/cpuinfo")
KINDS = {"amx": "has_amx", "vnni-bf16": "has_vnni_bf16", "vnni": "has_vnni", "avx512": "has_avx512"}
"""The best first, with the library's function that says whether the machine has what it takes."""
PRODUCTS = b"Int8FeedForward"
"""What an operator's name begins with that a graph has if a layer's products are our own too; where they do not fit,
only its attention is."""


@cache
def usable_kinds() -> tuple[str, ...]:
    if not LIBRARY.is_file() or not _is_whole(LIBRARY):
        return ()
    from ostraka_worker.kernels.build import hash_sources  # noqa: PLC0415  it is run as a module too

    try:
        library = ctypes.CDLL(str(LIBRARY))
        library.made_from.restype = ctypes.c_char_p
        if library.made_from() != hash_sources().encode():
            return _refuse_other()
        return tuple(kind for kind, ask in KINDS.items() if getattr(library, ask)())
    except AttributeError:
        return _refuse_other()
    except OSError:  # another system's
        return ()


def are_missing() -> bool:
    """Whether this CPU could use them, and nothing was compiled. An installation without a C compiler says so to who
    looks closely, and everything works, several times slower."""
    return not LIBRARY.is_file() and "avx512f" in CPU_INFO.read_text(encoding="utf-8").split()


def _is_whole(library: Path) -> bool:
    """A copy may have been cut short, and to load what is not there would end this process (SIGBUS)."""
    content = library.read_bytes()
    if len(content) < ELF_HEADER.size:
        return False
    sections_at, section_bytes, sections = ELF_HEADER.unpack_from(content)
    return len(content) >= int(sections_at + section_bytes * sections)


def _refuse_other() -> tuple[str, ...]:
    """After an update that compiled nothing, graphs may want what this one does not have."""
    log.warning("kernels_of_other_sources", library=str(LIBRARY), hint="python -m ostraka_worker.kernels.build")
    return ()


def graph_for(graph: Path, kind: str) -> Path:
    """Where the variant of a graph lies that wants this kind of kernel."""
    return graph.with_name(f"{graph.stem}.{kind}{graph.suffix}")


def kind_of(graph: Path) -> str:
    """The kernels that this variant of a graph wants; empty: none."""
    return graph.stem.partition(".")[2]


def multiplies(graph: Path) -> bool:
    """Whether the products of 8 bits in this variant of a graph are our own, and not the runtime's."""
    return PRODUCTS in graph.read_bytes()


def best_graph(graph: Path, names: Container[str]) -> Path:
    """The variant of a graph that is fastest here: itself, if it has no other or no kernel is usable. `names`: of the
    files that belong to the model. What else lies beside them, of an older folder perhaps, nobody has hashed."""
    variants = (graph_for(graph, kind) for kind in usable_kinds())
    return next((each for each in variants if each.name in names), graph)
