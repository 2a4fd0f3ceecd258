"""The one door to a checkpoint, whatever form it has: a GGUF file, or a folder as Hugging Face's tools write it."""

from pathlib import Path

from ostraka_worker.build.decoder import Checkpoint
from ostraka_worker.build.gguf_file import read_gguf
from ostraka_worker.build.progress import Progress

__all__ = ["Checkpoint", "read_checkpoint"]


def read_checkpoint(path: Path, progress: Progress) -> Checkpoint:
    """Its tensors are read when they are asked for. Raises SourceRefused or UnknownArchitecture."""
    progress.begin("reading the checkpoint")
    return read_gguf(path)
