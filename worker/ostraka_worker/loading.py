"""A model on its way from the folder to an engine that may answer: verified, loaded, and unchanged meanwhile."""

from dataclasses import dataclass

import numpy as np
import structlog

from ostraka_shared.errors import ModelDamaged
from ostraka_shared.model_folder import FileStates, ModelFolder, file_states, verified
from ostraka_worker.engine import Engine, Line
from ostraka_worker.engines import load_engine
from ostraka_worker.kernels import are_missing, best_graph, multiplies
from ostraka_worker.own_memory import own_mapped

log = structlog.get_logger()

PROOF_TOKENS = 2
"""Of the call that shows a fork to compute as its original did: every weight is used, and it takes one short call's
time (13 ms in int8, 36 in fp32, the first time about twice that)."""


@dataclass(frozen=True, slots=True, eq=False)
class Loaded:
    """`files` is how the folder's files were when they were hashed."""

    folder: ModelFolder
    engine: Engine
    files: FileStates

    def check_files(self) -> None:
        """Raises ModelDamaged where this may not be what the fingerprint says: weights are mapped."""
        if file_states(self.folder) != self.files:
            raise ModelDamaged(f"files of {self.folder.path} were written to or replaced after they were verified")

    def proof(self) -> bytes:
        """The bits of an answer that is the same for the same model on the same machine."""
        return self.engine.run([Line(np.ones(PROOF_TOKENS, np.uint32))]).tobytes()


@dataclass(frozen=True, slots=True, eq=False)
class Warm:
    """What a fork begins with: a model that has answered, how fast, and the proof it must give too."""

    loaded: Loaded
    tokens_per_s: float
    proof: bytes


def load_owned(folder: ModelFolder, threads: int) -> Loaded:
    """With the weights in memory of this process's own: from here on, the files are needed no more. Raises what
    `load_verified` raises, and MemoryError."""
    loaded = load_verified(folder, threads)
    own_mapped(folder.path / name for name in folder.hashes)
    loaded.check_files()
    return loaded


def load_verified(folder: ModelFolder, threads: int) -> Loaded:
    """Hashed at every load: a file altered since would give wrong answers under the right fingerprint. But not if the
    folder's seal says that whoever starts us has just done so: 0.2 s (int8) or 0.3 (fp32) of CPU, of a start of 3 s.

    Raises ModelDamaged, and what the engine raises.
    """
    files = file_states(folder)
    folder = verified(folder)
    loaded = Loaded(folder, load_engine(folder, threads), files)
    loaded.check_files()
    if folder.spec.engine == "onnx" and are_missing():
        log.warning("kernels_missing", hint="with a C compiler: python -m ostraka_worker.kernels.build")
    is_int8 = folder.spec.precision == "int8" and folder.spec.engine == "onnx"
    if is_int8 and not multiplies(best_graph(folder.graph, folder.hashes)):
        from ostraka_worker.int8_speed import warn_if_slow  # noqa: PLC0415  it brings the runtime

        warn_if_slow(loaded.engine.version)
    return loaded
