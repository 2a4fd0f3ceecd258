"""Peak memory of a build, on a random checkpoint of jevos's form: what it holds against the checkpoint's size.

python -m benchmarks.build_memory --precision int8         # bfloat16 safetensors in four shards, 1.8 GB
python -m benchmarks.build_memory --kind Q8_0              # the same as one GGUF file; Q4_K: of random blocks
python -m benchmarks.build_memory --kind Q4_0 --limit 2    # as root: in a cgroup that has twice the checkpoint
python -m benchmarks.build_memory --source model.gguf --without-kernels   # as on a CPU without AVX-512

What is mapped from files the system takes back when it is short of memory; only what is the process's own has to fit.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path

import gguf
import numpy as np

from ostraka_worker.build.catalog import DEFAULT_PRECISION, PRECISIONS
from tests.unit.worker.build.forms import FORMS, Form, Kind, random_tensors, write_folder, write_gguf

FORM = replace(FORMS["minicpm5"], layers=17, hidden=1536, wide=4608, context=8192, vocabulary=130_560)
BUILD = "import sys\nfrom ostraka.__main__ import main\nsys.exit(main(sys.argv[1:]))\n"
WITHOUT_KERNELS = "from ostraka_worker import kernels\nkernels.KINDS.clear()\n"
SAMPLE_S = 0.005
CGROUPS = Path("/sys/fs/cgroup")


@dataclass(frozen=True, slots=True)
class Held:
    """Bytes: the process's own, and with what is mapped from files."""

    own: int
    all: int


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--layers", type=int, default=FORM.layers)
    parser.add_argument("--precision", choices=PRECISIONS, default=DEFAULT_PRECISION)
    source = parser.add_mutually_exclusive_group()
    source.add_argument("--kind", choices=[kind.name for kind in Kind], help="a GGUF file of such weights")
    source.add_argument("--source", type=Path, help="a checkpoint that there is")
    parser.add_argument("--limit", type=float, help="the build may have this many times the checkpoint, or is killed")
    parser.add_argument("--without-kernels", action="store_true", help="the runtime's own operators alone")
    values = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        source = values.source or _write(Path(folder), replace(FORM, layers=values.layers), values.kind)
        size = sum(file.stat().st_size for file in ([source] if source.is_file() else source.iterdir()))
        command = [*_python(without_kernels=values.without_kernels), "model", "build", str(source)]
        command += ["--precision", values.precision, "--output", f"{folder}/model"]
        start = time.monotonic()
        with _limited(int(values.limit * size)) if values.limit else nullcontext(_nowhere) as enter:
            peak = _watch(subprocess.Popen(command, stdout=subprocess.DEVNULL, preexec_fn=enter))  # noqa: PLW1509
        model = sum(file.stat().st_size for file in Path(folder, "model").iterdir())
        print(
            f"{values.precision}: checkpoint {size / 1e6:.0f} MB, model {model / 1e6:.0f} MB; its own memory at most"
            f" {peak.own / 1e6:.0f} MB, {peak.own / size:.2f} of the checkpoint; with files it maps"
            f" {peak.all / 1e6:.0f} MB, {peak.all / size:.2f}; {time.monotonic() - start:.0f} s"
        )
    return 0


def _python(*, without_kernels: bool) -> list[str]:
    return [sys.executable, "-c", (WITHOUT_KERNELS if without_kernels else "") + BUILD]


def _watch(build: subprocess.Popen[bytes]) -> Held:
    own = everything = 0
    while build.poll() is None:
        held = _held(build.pid)
        own, everything = max(own, held.own), max(everything, held.all)
        time.sleep(SAMPLE_S)
    if build.returncode:
        sys.exit(f"the build ended with {build.returncode}")
    return Held(own, everything)


def _held(pid: int) -> Held:
    status = Path(f"/proc/{pid}/status").read_text(encoding="ascii", errors="replace")
    lines = (line.split() for line in status.splitlines() if line.startswith(("RssAnon:", "RssFile:", "RssShmem:")))
    kilobytes = {line[0]: int(line[1]) for line in lines}
    own = kilobytes.get("RssAnon:", 0) + kilobytes.get("RssShmem:", 0)
    return Held(own << 10, (own + kilobytes.get("RssFile:", 0)) << 10)


def _nowhere() -> None: ...


@contextmanager
def _limited(most: int) -> Iterator[Callable[[], None]]:
    """What a child calls to be in a cgroup of its own, of either version, that has so many bytes and no swap."""
    if (CGROUPS / "memory").is_dir():
        parent, limits = CGROUPS / "memory", ("memory.limit_in_bytes", "memory.memsw.limit_in_bytes")
    else:
        parent, limits = CGROUPS, ("memory.max", "memory.swap.max")
    group = Path(tempfile.mkdtemp(prefix="ostraka-build-", dir=parent))

    def enter() -> None:
        (group / "cgroup.procs").write_text(str(os.getpid()))

    try:
        (group / limits[0]).write_text(str(most))
        if (swap := group / limits[1]).exists():
            swap.write_text(str(most if swap.name.startswith("memory.memsw") else 0))
        yield enter
    finally:
        group.rmdir()


def _write(folder: Path, form: Form, kind: str | None) -> Path:
    """In a process of its own: its memory is not the build's."""
    child = os.fork()
    if not child:
        if kind == Kind.Q4_K.name:
            gguf.quantize = _random_blocks  # the package only reads them
        if kind:
            write_gguf(folder / "checkpoint.gguf", form, random_tensors(form, spread=0.02), Kind[kind])
        else:
            write_folder(folder / "checkpoint", form, random_tensors(form, spread=0.02), shards=4)
        os._exit(0)
    if os.waitpid(child, 0)[1]:
        sys.exit("the checkpoint could not be written")
    return folder / ("checkpoint.gguf" if kind else "checkpoint")


def _random_blocks(tensor: np.ndarray, kind: Kind) -> np.ndarray:
    """In place of what is given, as much in random Q4_K blocks, around zero and about as far from it."""
    if kind != Kind.Q4_K:
        return tensor
    blocks = np.random.default_rng(7).integers(0, 256, (len(tensor), tensor.shape[1] // 256, 144), np.uint8)
    blocks[..., :4] = np.array([1.4e-4, 7.5 * 1.4e-4], "<f2").view(np.uint8)
    blocks[..., 4:12], blocks[..., 12:16] = 32, 0xFF  # of each group the same scale and minimum
    return blocks.reshape(len(tensor), -1)


if __name__ == "__main__":
    sys.exit(main())
