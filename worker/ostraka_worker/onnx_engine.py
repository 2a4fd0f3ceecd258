"""The ONNX Runtime behind the Engine protocol, and the only import of it."""

import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from ostraka_shared.errors import ModelDamaged
from ostraka_worker import large_pages
from ostraka_worker.engine import Line, Memory, first_position
from ostraka_worker.kernels import LIBRARY, kind_of, usable_kinds
from ostraka_worker.packing import Inputs, Packed, pack, pack_lines

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

DTYPES: dict[str, type[np.generic]] = {"tensor(float)": np.float32, "tensor(uint16)": np.uint16}
"""Of what is kept; the latter is bfloat16, which numpy does not know and need not."""


def open_session(graph: Path | bytes, threads: int = 1) -> ort.InferenceSession:
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    # All else is the default on purpose: without the arena 12 % slower, without prepacked weights 13 %.
    if usable_kinds():
        options.register_custom_ops_library(str(LIBRARY))
    return ort.InferenceSession(graph, options, providers=["CPUExecutionProvider"])


class OnnxEngine:
    """A loaded graph. `threads` is its whole core set: more than one buys latency, not throughput.

    Raises ModelDamaged where the graph or its weights cannot be loaded.
    """

    def __init__(self, graph: Path, threads: int = 1) -> None:
        try:
            self._session = open_session(graph, threads)
        except UNLOADABLE as bad:
            raise ModelDamaged(f"{graph} cannot be loaded ({str(bad).splitlines()[0]}): build the model again") from bad

        kind = kind_of(graph)
        self._kernels = f"+{kind}" if kind else ""
        inputs = self._session.get_inputs()
        self._pack = pack_lines if any(each.name == "lines" for each in inputs) else pack
        self._past = [each for each in inputs if each.name.startswith("past_")]
        self._kept = [each.name for each in self._session.get_outputs()][1:]
        self._dtype = DTYPES[self._past[0].type]
        self._no_past = {each.name: np.zeros((0, each.shape[1]), self._dtype) for each in self._past}

    @property
    def version(self) -> str:
        return f"onnxruntime {ort.__version__}{self._kernels}"

    def memory(self, tokens: int) -> Memory:
        """One array: a single part of a state fills no large page."""
        return Memory(tuple(large_pages.empty((len(self._past), tokens, self._past[0].shape[1]), self._dtype)))

    def run(self, lines: Sequence[Line]) -> npt.NDArray[np.float32]:
        packed = self._pack(lines)
        wanted = self._kept if any(line.keep_tokens for line in lines) else []
        logits, *kept = self._session.run(["logits", *wanted], packed.inputs | self._past_inputs(packed))
        for line, start in zip(lines, packed.starts.tolist(), strict=True):
            if line.keep is not None and line.keep_tokens:
                rows = [part[start : start + line.keep_tokens] for part in kept]
                line.keep.write(first_position(lines, line), rows)
        result: npt.NDArray[np.float32] = logits[: sum(line.is_answered for line in lines)]
        return result

    def _past_inputs(self, packed: Packed) -> Inputs:
        """A single memory goes in as it lies; only several are copied, to lie end to end."""
        if not packed.past:
            return dict(self._no_past)
        views = [memory.first(tokens) for memory, tokens in packed.past]
        joined = views[0] if len(views) == 1 else [np.concatenate(parts) for parts in zip(*views, strict=True)]
        return {each.name: part for each, part in zip(self._past, joined, strict=True)}
