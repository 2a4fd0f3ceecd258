"""Writes ONNX nodes, and weights into an external data file, page-aligned so that the runtime can map it."""

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import BinaryIO

import numpy as np
import numpy.typing as npt
import onnx
from onnx import TensorProto, helper, numpy_helper

# The first with the Attention operator, and the file format that came with it.
OPSET = 23
IR_VERSION = 11
PAGE_BYTES = 4096
# Smaller tensors stay in the graph: constant folding wants to see them, and a page each would be waste.
INLINE_BYTES = 1024
MICROSOFT = "com.microsoft"

Attribute = int | float | str | list[int]


class NodeWriter:
    """Appends nodes to a graph and tensors to `data`, which lies at `data_path` and belongs to the caller."""

    def __init__(self, data: BinaryIO, data_path: Path) -> None:
        self._data = data
        self._location = data_path.name
        self._nodes: list[onnx.NodeProto] = []
        self._tensors: list[onnx.TensorProto] = []
        self._names = 0
        self.kernel_tensors: list[onnx.TensorProto] = []
        """Of no node that is written here: for the variants with our own kernels."""

    def op(self, kind: str, *inputs: str, domain: str = "", output: str = "", **attributes: Attribute) -> str:
        """Appends a node with one output and returns that output's name."""
        output = output or self._name(kind)
        self._nodes.append(_node(kind, inputs, [output], domain, attributes))
        return output

    def skip_norm(self, x: str, skip: str, gain: str, epsilon: float) -> tuple[str, str]:
        """Returns x + skip normalised, and x + skip itself."""
        normed, total = self._name("normed"), self._name("residual")
        outputs = [normed, "", "", total]
        kind = "SkipSimplifiedLayerNormalization"
        node = _node(kind, [x, skip, gain], outputs, MICROSOFT, {"epsilon": epsilon})
        self._nodes.append(node)
        return normed, total

    def split(self, x: str, sizes: str, outputs: list[str]) -> list[str]:
        """Cuts the last axis; `sizes` is a weight."""
        names = [name or self._name("split") for name in outputs]
        self._nodes.append(_node("Split", [x, sizes], names, "", {"axis": -1}))
        return names

    def choose(self, condition: str, then: Callable[[], str], otherwise: Callable[[], str]) -> str:
        """The result of one of two branches, decided at run time; either may read whatever was written before it."""
        node = _node("If", [condition], [self._name("chosen")], "", {})
        for name, build in (("then_branch", then), ("else_branch", otherwise)):
            outer, self._nodes = self._nodes, []
            result = helper.make_tensor_value_info(build(), TensorProto.FLOAT, None)
            node.attribute.append(helper.make_attribute(name, helper.make_graph(self._nodes, name, [], [result])))
            self._nodes = outer
        self._nodes.append(node)
        return str(node.output[0])

    def weight(self, name: str, array: npt.NDArray[np.generic]) -> str:
        array = np.ascontiguousarray(array)
        if array.nbytes <= INLINE_BYTES:
            self._tensors.append(numpy_helper.from_array(array, name))
            return name
        return self._external(name, array.shape, array.dtype, [array])

    def kernel_weight(self, name: str, array: npt.NDArray[np.generic]) -> None:
        self.weight(name, array)
        self.kernel_tensors.append(self._tensors.pop())

    def weight_in_pieces(self, name: str, shape: tuple[int, ...], pieces: Iterable[npt.NDArray[np.float32]]) -> str:
        """A float32 weight whose rows come in runs: none of them is kept."""
        return self._external(name, shape, np.dtype(np.float32), pieces)

    def _external(
        self,
        name: str,
        shape: tuple[int, ...],
        dtype: np.dtype[np.generic],
        pieces: Iterable[npt.NDArray[np.generic]],
    ) -> str:
        offset = -(-self._data.tell() // PAGE_BYTES) * PAGE_BYTES
        self._data.seek(offset)
        for piece in pieces:
            self._data.write(np.ascontiguousarray(piece).data)
        length = self._data.tell() - offset
        kind = helper.np_dtype_to_tensor_dtype(dtype)
        tensor = TensorProto(name=name, data_type=kind, dims=shape, data_location=TensorProto.EXTERNAL)
        for key, value in (("location", self._location), ("offset", offset), ("length", length)):
            tensor.external_data.add(key=key, value=str(value))
        self._tensors.append(tensor)
        return name

    def _name(self, kind: str) -> str:
        self._names += 1
        return f"{kind}_{self._names}"

    def model(self, inputs: list[onnx.ValueInfoProto], outputs: list[onnx.ValueInfoProto]) -> onnx.ModelProto:
        graph = helper.make_graph(self._nodes, "decisions", inputs, outputs, self._tensors)
        opsets = [helper.make_opsetid("", OPSET), helper.make_opsetid(MICROSOFT, 1)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=IR_VERSION, producer_name="ostraka")


def _node(
    kind: str, inputs: Iterable[str], outputs: list[str], domain: str, attributes: Mapping[str, Attribute]
) -> onnx.NodeProto:
    node = helper.make_node(kind, list(inputs), outputs, domain=domain)
    node.attribute.extend(helper.make_attribute(name, value) for name, value in sorted(attributes.items()))
    return node
