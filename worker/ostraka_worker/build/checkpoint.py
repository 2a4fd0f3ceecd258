"""The one door to a checkpoint, whatever form it has: a GGUF file, or a folder as Hugging Face's tools write it."""

from pathlib import Path

from ostraka_worker.build.decoder import Checkpoint
from ostraka_worker.build.gguf_file import read_gguf
from ostraka_worker.build.hugging_face import read_folder
from ostraka_worker.build.progress import Progress

__all__ = ["Checkpoint", "open_checkpoint", "read_checkpoint"]


def read_checkpoint(path: Path, progress: Progress) -> Checkpoint:
    """As `open_checkpoint`, and says so."""
    progress.begin("reading the checkpoint")
    return open_checkpoint(path)


def open_checkpoint(path: Path) -> Checkpoint:
    """Its tensors are read when they are asked for. Raises SourceRefused or UnknownArchitecture."""
    return read_folder(path) if path.is_dir() else read_gguf(path)
