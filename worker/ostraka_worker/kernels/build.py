"""Compiles the kernels beside their source: `python -m ostraka_worker.kernels.build`. An installation does it too.

It imports nothing of ours: the package's build runs it by its path.
"""

import hashlib
import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path

FOLDER = Path(__file__).parent
LIBRARY = FOLDER / "kernels.so"
COMPILERS = ("cc", "gcc", "clang")
FLAGS = ["-O3", "-std=gnu11", "-fPIC", "-shared", "-fvisibility=hidden", "-Wall", "-Wextra", "-Wno-unused-parameter"]
# For the whole library: whoever loads it asks the functions of kernels.KINDS before anything else.
AVX512 = ["avx512f", "avx512bw", "avx512vl", "avx512dq", "avx512vnni", "avx512bf16"]
MACHINE = [*AVX512, "fma", "amx-tile", "amx-bf16", "amx-int8"]


def hash_sources() -> str:
    """Of all that the library is made from: compiled into it, so that one of other sources is known."""
    sources = (path for path in sorted(FOLDER.iterdir()) if path.suffix in {".c", ".h"})
    return hashlib.sha256(b"\0".join(source.read_bytes() for source in sources)).hexdigest()


def missing_for_compiling() -> str:
    """Empty where they can be compiled."""
    if (sys.platform, platform.machine()) != ("linux", "x86_64"):
        return "the kernels are for Linux on x86-64"
    return "" if _find_compiler() else "there is no C compiler"


def _find_compiler() -> str:
    return os.environ.get("CC") or next(filter(shutil.which, COMPILERS), "")


def compile_kernels(target: Path = LIBRARY) -> str:
    """Returns what stood in the way, or nothing. The library appears whole or not at all."""
    if missing := missing_for_compiling():
        return missing
    compiler = _find_compiler()
    made = target.with_suffix(f".{os.getpid()}")
    command = [*compiler.split(), *FLAGS, *(f"-m{each}" for each in MACHINE), "-o", str(made)]
    command.append(f'-DSOURCES="{hash_sources()}"')
    sources = sorted(str(source) for source in FOLDER.glob("*.c"))
    try:
        subprocess.run([*command, *sources, "-lm"], check=True, capture_output=True, text=True)
        made.replace(target)
    except (OSError, subprocess.CalledProcessError) as bad:
        said = getattr(bad, "stderr", "").strip() or str(bad)
        return f"{compiler} cannot compile the kernels ({said.splitlines()[0]})"
    finally:
        made.unlink(missing_ok=True)
    return ""


if __name__ == "__main__":
    sys.exit(compile_kernels() or 0)
