"""The ONNX Runtime behind the Engine protocol, and the only import of it."""

import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from ostraka_shared.errors import ModelDamaged
from ostraka_worker.engine import Prompt

# Its Linux wheels from 1.30 on report usage to their maker unless this is set before the import.
os.environ["ORT_DISABLE_TELEMETRY"] = "1"

import onnxruntime as ort
from onnxruntime.capi import onnxruntime_pybind11_state as states

UNLOADABLE = (
    states.Fail,
    states.InvalidArgument,
    states.InvalidGraph,
    states.InvalidProtobuf,
    states.NoSuchFile,
    states.NotImplemented,
    states.RuntimeException,
)

Int32s = npt.NDArray[np.int32]


class OnnxEngine:
    """A loaded graph. `threads` is its whole core set: more than one buys latency, not throughput.

    Raises ModelDamaged where the graph or its weights cannot be loaded.
    """

    def __init__(self, graph: Path, threads: int = 1) -> None:
        options = ort.SessionOptions()
        options.intra_op_num_threads = threads
        options.inter_op_num_threads = 1
        # All else is the default on purpose: without the arena 12 % slower, without prepacked weights 13 %.
        try:
            self._session = ort.InferenceSession(graph, options, providers=["CPUExecutionProvider"])
        except UNLOADABLE as bad:
            raise ModelDamaged(f"{graph} cannot be loaded ({str(bad).splitlines()[0]}): build the model again") from bad

    @property
    def version(self) -> str:
        return f"onnxruntime {ort.__version__}"

    def run(self, prompts: Sequence[Prompt]) -> npt.NDArray[np.float32]:
        (logits,) = self._session.run(["logits"], pack(prompts))
        result: npt.NDArray[np.float32] = logits
        return result


def pack(prompts: Sequence[Prompt]) -> dict[str, Int32s]:
    """The graph's inputs, as build/graph.py describes them. Token ids are copied once, into the call's rows."""
    lengths = np.array([prompt.tokens for prompt in prompts], np.int32)
    longest = int(lengths.max())
    starts = np.cumsum(lengths, dtype=np.int32) - lengths
    parts = [part for prompt in prompts for part in (prompt.prefix, prompt.suffix)]
    columns = np.arange(longest, dtype=np.int32)
    inside = columns < lengths[:, None]
    return {
        "token_ids": np.concatenate(parts, dtype=np.int32, casting="unsafe"),
        "pad": np.where(inside, starts[:, None] + columns, np.int32(0)),
        "unpad": np.flatnonzero(inside).astype(np.int32),
        "last": starts + lengths - np.int32(1),
        "ends": lengths - np.int32(1),
        "longest": np.array(longest, np.int32),
    }
