"""What a gateway needs of a model folder: its description, its hashes and its tokenizer. Small enough to be kept in
memory, verified, so that a gateway can be started whatever has become of the folder.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from ostraka_shared.errors import ModelDamaged
from ostraka_shared.model_folder import SPEC_FILE, SUMS_FILE, TOKENIZER_FILE, ModelFolder, open_folder

NAMES = (SPEC_FILE, SUMS_FILE, TOKENIZER_FILE)


def read_front(folder: ModelFolder) -> dict[str, bytes]:
    """By name, as they were when the folder was opened. Raises ModelDamaged."""
    hashes = {**folder.hashes, SUMS_FILE: folder.fingerprint}
    return {name: read_verified(folder.path / name, hashes[name]) for name in NAMES}


def read_verified(path: Path, expected: str) -> bytes:
    """`expected`: its SHA-256. Raises ModelDamaged."""
    try:
        content = path.read_bytes()
    except OSError as bad:
        raise ModelDamaged(f"{path} cannot be read ({bad.strerror}): build the model again") from bad
    if hashlib.sha256(content).hexdigest() != expected:
        raise ModelDamaged(f"{path} was altered since it was built: build the model again")
    return content


def write_front(files: Mapping[str, bytes], folder: Path) -> None:
    """Raises OSError."""
    folder.mkdir(mode=0o700, exist_ok=True)
    for name, content in files.items():
        (folder / name).write_bytes(content)


def open_front(kept: Path, path: Path) -> ModelFolder:
    """The model folder at `path`, as the files in `kept` describe it. Raises ModelMissing or ModelDamaged."""
    return replace(open_folder(kept, is_whole=False), path=path, front=kept)
