"""The variants of a graph that use our own kernels: the same graph, but for the attention of each layer.

All variants share one file of weights. Which of them serves is the loader's choice (kernels.best_graph): a folder moves
between machines, the instructions of a CPU do not.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import onnx
from onnx import TensorProto, helper

from ostraka_worker.build.decoder import Config

DOMAIN = "ostraka"
FIELDS = 5
"""Of a line: its first row and how many; where its past begins and how long it is; its parent, or -1."""
LEAST_DIMS, MOST_DIMS = 32, 256
"""A head's width is a multiple of the one and at most the other."""
PRECISION_KINDS = {"fp32": ("avx512",), "int8": ("avx512", "amx")}
"""amx rounds keys, values and odds to bfloat16: 2 to 5 times as fast, and less of an error than int8's own."""


@dataclass(frozen=True, slots=True)
class Attention:
    """Of one layer: the rows that go in, and what the graph calls the rows that come out."""

    query: str
    key: str
    value: str
    attended: str


def kinds_for(config: Config, precision: str) -> tuple[str, ...]:
    fits = config.head_dims % LEAST_DIMS == 0 and config.head_dims <= MOST_DIMS
    return PRECISION_KINDS[precision] if fits else ()


def with_kernels(model: onnx.ModelProto, layers: Sequence[Attention], config: Config, kind: str) -> onnx.ModelProto:
    """Its inputs: token_ids, positions and last as in the model; lines, FIELDS numbers each; past_*. Its outputs are
    the model's, in their order."""
    graph = model.graph
    by_output = {layer.attended: index for index, layer in enumerate(layers)}
    nodes: list[onnx.NodeProto] = []
    for node in graph.node:
        if (index := by_output.get(node.output[0])) is None:
            nodes.append(node)
        else:
            nodes += _attend(layers[index], index, config, kind)
    used = {name for node in nodes for name in node.input}
    inputs = [_lines(), *(_typed(each, kind) for each in graph.input if each.name in used)]
    outputs = [_typed(each, kind) if index else each for index, each in enumerate(graph.output)]
    weights = [tensor for tensor in graph.initializer if tensor.name in used]
    opsets = [*model.opset_import, helper.make_opsetid(DOMAIN, 1)]
    made = helper.make_graph(nodes, graph.name, inputs, outputs, weights)
    return helper.make_model(made, opset_imports=opsets, ir_version=model.ir_version, producer_name=model.producer_name)


def _attend(layer: Attention, index: int, config: Config, kind: str) -> Iterable[onnx.NodeProto]:
    rows = [layer.key, layer.value]
    operator = "LineAttention"
    if kind == "amx":
        operator = "LineAttentionBf16"
        rows = [f"kept_{name}" for name in rows]
        for name, rounded in zip((layer.key, layer.value), rows, strict=True):
            yield helper.make_node("ToBf16", [name], [rounded], domain=DOMAIN)
    inputs = [layer.query, *rows, f"past_key_{index}", f"past_value_{index}", "lines"]
    node = helper.make_node(operator, inputs, [layer.attended], domain=DOMAIN)
    node.attribute.append(helper.make_attribute("heads", config.heads))
    node.attribute.append(helper.make_attribute("kv_heads", config.kv_heads))
    yield node


def _lines() -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info("lines", TensorProto.INT32, ["lines", FIELDS])


def _typed(info: onnx.ValueInfoProto, kind: str) -> onnx.ValueInfoProto:
    """What is kept, in and out, is in the kernels' own type."""
    if kind != "amx" or not info.name.startswith(("past_", "key_", "value_")):
        return info
    name = info.name if info.name.startswith("past_") else f"kept_{info.name}"
    shape = [each.dim_param or each.dim_value for each in info.type.tensor_type.shape.dim]
    return helper.make_tensor_value_info(name, TensorProto.UINT16, shape)
