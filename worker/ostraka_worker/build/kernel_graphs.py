"""The variants of a graph that use our own kernels: the same graph, but for the attention of each layer, or all of it.

All variants share one file of weights. Which of them serves is the loader's choice (kernels.best_graph): a folder moves
between machines, the instructions of a CPU do not.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import onnx
from onnx import NodeProto, TensorProto, helper

from ostraka_worker.build.decoder import Config
from ostraka_worker.build.panels import PANEL

DOMAIN = "ostraka"
FIELDS = 5
"""Of a line: its first row and how many; where its past begins and how long it is; its parent, or -1."""
LEAST_DIMS, MOST_DIMS = 32, 256
"""A head's width is a multiple of the one and at most the other."""
KINDS = {"fp32": ("avx512",), "bf16": ("avx512", "amx"), "int8": ("avx512", "vnni", "vnni-bf16", "amx")}
"""By what the weights lie in: an fp32 graph's in bf16 where that holds them all."""
WHOLE_KINDS = {"fp32": ("avx512",), "bf16": ("avx512", "amx"), "int8": ("vnni", "vnni-bf16", "amx")}
"""Those whose layers are our own as a whole, where they fit; of the others the attention alone."""
ALONE = ("avx512", "amx")
"""Those that are written with their attention alone too: others would save little beside the runtime's products."""
WEIGHTS = {"fp32": ("panels",), "bf16": ("halves",), "int8": ("tiles", "scale")}
"""What follows a layer's name in those of its weights; OFFSET too, where rows lie shifted."""
OFFSET = "offset"
LAYOUTS = {"fp32": "Fp32", "bf16": "Halves", "int8": "Int8"}
"""Bf16Heads and Bf16FeedForward were operators of another one."""
NO_BIAS, NO_HEAD_NORMS = "no_bias", "no_head_norms"
"""What the kernels are given in place of a weight that an architecture does not have."""


@dataclass(frozen=True, slots=True)
class Layer:
    """What the graph calls the rows that go into a layer and come out of its parts."""

    normed: str
    query: str
    key: str
    value: str
    attended: str
    selected: str
    """Of `attended` and `residual`, the rows that are read on: in the last layer not all of them."""
    residual: str
    next_normed: str
    next_residual: str


@dataclass(frozen=True, slots=True)
class Variant:
    """`weights`: what those of our own layers lie in; `is_whole`: the layers are our own, not the attention alone."""

    kind: str
    weights: str
    is_whole: bool

    @property
    def keeps_halves(self) -> bool:
        """int8 rounds keys, values and odds to bfloat16 where that can be multiplied: on AMX 2 to 5 times as fast, and
        less of an error than int8's own. In fp32 nothing is rounded."""
        return self.weights == "int8" and self.kind in {"amx", "vnni-bf16"}

    @property
    def is_shifted(self) -> bool:
        return self.kind in {"vnni", "vnni-bf16"}

    @property
    def attention_operator(self) -> str:
        if not self.keeps_halves:
            return "LineAttention"
        return "LineAttentionBf16" if self.kind == "amx" else "LineAttentionBf16Dots"

    @property
    def heads_operator(self) -> str:
        return f"{LAYOUTS[self.weights]}Heads{self._instructions}{'Bf16' if self.kind == 'vnni-bf16' else ''}"

    @property
    def feed_forward_operator(self) -> str:
        return f"{LAYOUTS[self.weights]}FeedForward{self._instructions}"

    @property
    def _instructions(self) -> str:
        """An operator's name stands for the layout of its weights, so that a folder of another one is refused and not
        misread. After it, the instructions, where there are others for that layout."""
        if self.is_shifted:
            return "Vnni"
        return "Amx" if (self.kind, self.weights) == ("amx", "bf16") else ""

    def weights_of(self, name: str) -> list[str]:
        parts = WEIGHTS[self.weights]
        return [f"{name}_{part}" for part in ((*parts, OFFSET) if self.is_shifted else parts)]

    def kept(self, name: str) -> str:
        """What is kept of these rows, in the kernels' own type."""
        return f"kept_{name}" if self.keeps_halves else name


def own_weights(config: Config, precision: str, *, in_bf16: bool) -> str:
    """What the weights of layers that are our own as a whole lie in; empty: they do not fit our products."""
    held = "bf16" if in_bf16 and precision == "fp32" else precision
    return held if has_own_layers(config) else ""


def has_own_layers(config: Config) -> bool:
    return config.hidden % PANEL == 0 and config.feed_forward % PANEL == 0 and _fits(config)


def variants_for(config: Config, precision: str, own: str) -> list[Variant]:
    """`own`: as own_weights has it."""
    if not _fits(config):
        return []
    weights = own or precision
    variants = [Variant(kind, weights, bool(own) and kind in WHOLE_KINDS[weights]) for kind in KINDS[weights]]
    return [each for each in variants if each.is_whole or each.kind in ALONE]


def _fits(config: Config) -> bool:
    return config.head_dims % LEAST_DIMS == 0 and config.head_dims <= MOST_DIMS


def with_kernels(
    model: onnx.ModelProto, own: Sequence[TensorProto], layers: Sequence[Layer], config: Config, variant: Variant
) -> onnx.ModelProto:
    """Its inputs: token_ids, positions and last as in the model; lines, FIELDS numbers each; past_*. Its outputs are
    the model's, in their order. `own`: weights for the kernels alone."""
    graph = model.graph
    replaced: dict[str, list[NodeProto]] = {}
    for index, layer in enumerate(layers):
        attend = _attend(layer, index, config, variant)
        if variant.is_whole:
            replaced[layer.query] = [_heads(layer, index, config, variant)]
            replaced[layer.attended] = [attend]
            replaced[layer.next_normed] = [_feed_forward(layer, index, config, variant)]
        else:
            replaced[layer.attended] = [*_rounded(layer, variant), attend]
    ours = {name for made in replaced.values() for node in made for name in node.output}
    nodes = [
        new
        for node in graph.node
        for new in replaced.get(node.output[0], [] if ours.intersection(node.output) else [node])
    ]
    outputs = [_typed(each, variant) if index else each for index, each in enumerate(graph.output)]
    nodes = reachable(nodes, [each.name for each in outputs])
    used = {name for node in nodes for name in node.input}
    inputs = [_lines(), *(_typed(each, variant) for each in graph.input if each.name in used)]
    weights = [tensor for tensor in (*graph.initializer, *own) if tensor.name in used]
    opsets = [*model.opset_import, helper.make_opsetid(DOMAIN, 1)]
    made = helper.make_graph(nodes, graph.name, inputs, outputs, weights)
    return helper.make_model(made, opset_imports=opsets, ir_version=model.ir_version, producer_name=model.producer_name)


def reachable(nodes: Sequence[NodeProto], outputs: Iterable[str]) -> list[NodeProto]:
    """The nodes that these outputs come from, in their order."""
    wanted, kept = set(outputs), []
    for node in reversed(nodes):
        if wanted.intersection(node.output):
            kept.append(node)
            wanted.update(node.input)
    return kept[::-1]


def _rounded(layer: Layer, variant: Variant) -> list[NodeProto]:
    names = (layer.key, layer.value) if variant.keeps_halves else ()
    return [helper.make_node("ToBf16", [name], [variant.kept(name)], domain=DOMAIN) for name in names]


def _attend(layer: Layer, index: int, config: Config, variant: Variant) -> NodeProto:
    rows = (variant.kept(layer.key), variant.kept(layer.value))
    inputs = [layer.query, *rows, f"past_key_{index}", f"past_value_{index}", "lines"]
    return _with_heads(helper.make_node(variant.attention_operator, inputs, [layer.attended], domain=DOMAIN), config)


def _with_heads(node: NodeProto, config: Config) -> NodeProto:
    for name in ("heads", "kv_heads"):
        node.attribute.append(helper.make_attribute(name, getattr(config, name)))
    return node


def _heads(layer: Layer, index: int, config: Config, variant: Variant) -> NodeProto:
    bias = f"qkv_{index}_bias" if config.has_biases else NO_BIAS
    gains = f"head_norm_{index}" if config.has_head_norms else NO_HEAD_NORMS
    inputs = [layer.normed, "positions", *variant.weights_of(f"qkv_{index}"), bias, gains, "cosines", "sines"]
    outputs = [layer.query, variant.kept(layer.key), variant.kept(layer.value)]
    node = helper.make_node(variant.heads_operator, inputs, outputs, domain=DOMAIN, epsilon=config.norm_epsilon)
    return _with_heads(node, config)


def _feed_forward(layer: Layer, index: int, config: Config, variant: Variant) -> NodeProto:
    inputs = [layer.selected, layer.residual, *variant.weights_of(f"out_{index}"), f"ffn_norm_{index}"]
    inputs += [*variant.weights_of(f"ffn_{index}_wide"), *variant.weights_of(f"ffn_{index}_down"), f"norm_{index + 1}"]
    outputs = [layer.next_normed, layer.next_residual]
    return helper.make_node(variant.feed_forward_operator, inputs, outputs, domain=DOMAIN, epsilon=config.norm_epsilon)


def _lines() -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info("lines", TensorProto.INT32, ["lines", FIELDS])


def _typed(info: onnx.ValueInfoProto, variant: Variant) -> onnx.ValueInfoProto:
    """What is kept, in and out, is in the kernels' own type."""
    if not variant.keeps_halves or not info.name.startswith(("past_", "key_", "value_")):
        return info
    name = info.name if info.name.startswith("past_") else variant.kept(info.name)
    shape = [each.dim_param or each.dim_value for each in info.type.tensor_type.shape.dim]
    return helper.make_tensor_value_info(name, TensorProto.UINT16, shape)
