"""Peak memory of a build, on a random checkpoint of jevos's form: what it holds against the checkpoint's size.

python -m benchmarks.build_memory --layers 17 --precision int8     # bfloat16 safetensors in four shards, 1.8 GB
python -m benchmarks.build_memory --layers 17 --kind Q8_0          # the same as one GGUF file
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

from ostraka_worker.build.catalog import DEFAULT_PRECISION, PRECISIONS
from tests.unit.worker.build.forms import FORMS, Form, Kind, random_tensors, write_folder, write_gguf

FORM = replace(FORMS["minicpm5"], layers=17, hidden=1536, wide=4608, context=8192, vocabulary=130_560)
BUILD = (
    "import resource, sys\n"
    "from ostraka.__main__ import main\n"
    "begin = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
    "code = main(sys.argv[1:])\n"
    "print(begin * 1024, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)\n"
    "sys.exit(code)\n"
)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--layers", type=int, default=FORM.layers)
    parser.add_argument("--precision", choices=PRECISIONS, default=DEFAULT_PRECISION)
    parser.add_argument("--kind", choices=[kind.name for kind in Kind], help="a GGUF file of such weights")
    values = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        source = _write(Path(folder), replace(FORM, layers=values.layers), values.kind)
        size = sum(file.stat().st_size for file in ([source] if source.is_file() else source.iterdir()))
        _report(size, source, Path(folder) / "model", values.precision)
    return 0


def _write(folder: Path, form: Form, kind: str | None) -> Path:
    """In a process of its own: its memory is not the build's."""
    child = os.fork()
    if not child:
        tensors = random_tensors(form, spread=0.02)
        if kind:
            write_gguf(folder / "checkpoint.gguf", form, tensors, Kind[kind])
        else:
            write_folder(folder / "checkpoint", form, tensors, shards=4)
        os._exit(0)
    if os.waitpid(child, 0)[1]:
        sys.exit("the checkpoint could not be written")
    return folder / ("checkpoint.gguf" if kind else "checkpoint")


def _report(size: int, source: Path, target: Path, precision: str) -> None:
    start = time.monotonic()
    command = [sys.executable, "-c", BUILD, "model", "build", source, "--precision", precision, "--output", target]
    printed = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    begin, peak = map(int, printed.splitlines()[-1].split())
    model = sum(file.stat().st_size for file in target.iterdir())
    print(
        f"{precision}: checkpoint {size / 1e6:.0f} MB, model {model / 1e6:.0f} MB, peak {peak / 1e6:.0f} MB "
        f"({begin / 1e6:.0f} MB of it before the build): {peak / size:.2f} of the checkpoint; "
        f"{time.monotonic() - start:.0f} s"
    )


if __name__ == "__main__":
    sys.exit(main())
