"""The linear layers of a graph, in each precision. Both give a row the same answer whatever rows share the call."""

from typing import Protocol

import numpy as np

from ostraka_worker.build.bfloat16 import as_bf16
from ostraka_worker.build.decoder import Tensor
from ostraka_worker.build.nodes import MICROSOFT, NodeWriter
from ostraka_worker.build.panels import Int8s, in_half_tiles, in_panels, in_tiles, in_turn, offsets


class Linears(Protocol):
    """Weights are [out, in], as a checkpoint has them. `name` makes the weight's name unique."""

    def linear(self, x: str, name: str, weight: Tensor, bias: Tensor | None = None) -> str: ...

    def feed_forward(self, x: str, name: str, gate: Tensor, up: Tensor, down: Tensor) -> str:
        """down(silu(gate(x)) * up(x))."""


class Fp32Linears:
    """`own`: the weights are written a second time, in this type, as our own kernels read them (kernel_graphs.py has
    the names); empty: they are not.

    Once would do, if the runtime turned them for its operators while it loads: with the embedded model, in float, that
    took 870 MB at most, not 290, and 0.5 s more. Read as the runtime wants them, our products took twice as long.
    """

    def __init__(self, nodes: NodeWriter, own: str = "") -> None:
        self._nodes = nodes
        self._own = own

    def linear(self, x: str, name: str, weight: Tensor, bias: Tensor | None = None) -> str:
        self._write_own(name, weight)
        return _biased(self._nodes, self._multiply(x, name, weight), name, bias)

    def feed_forward(self, x: str, name: str, gate: Tensor, up: Tensor, down: Tensor) -> str:
        if self._own:
            self._write_own(f"{name}_wide", in_turn(gate, up))
        gated = silu(self._nodes, self._multiply(x, f"{name}_gate", gate))
        raised = self._multiply(x, f"{name}_up", up)
        return self.linear(self._nodes.op("Mul", gated, raised), f"{name}_down", down)

    def _write_own(self, name: str, weight: Tensor) -> None:
        if self._own == "bf16":
            self._nodes.kernel_weight(f"{name}_halves", in_half_tiles(as_bf16(weight)))
        elif self._own:
            self._nodes.kernel_weight(f"{name}_panels", in_panels(weight))

    def _multiply(self, x: str, name: str, weight: Tensor) -> str:
        return self._nodes.op("MatMul", x, self._nodes.weight(name, weight.T))


class Int8Linears:
    """u8 activations with one scale a row, s8 weights with one scale an output.

    A scale for the whole tensor would let one prompt's outlier move another's answer: by 0.36 in P(yes), measured.
    Rows are shifted by 128 because u8 x s8 is the only pairing with a fast kernel on x86 (s8 x s8: 10x slower).
    `tiled`: the weights are written a second time, as our own kernels read them (kernel_graphs.py has the names).
    """

    def __init__(self, nodes: NodeWriter, *, tiled: bool = False) -> None:
        self._nodes = nodes
        self._tiled = tiled
        self._per_127 = nodes.weight("per_127", np.array(1 / 127, np.float32))
        self._one = nodes.weight("one", np.array(1, np.float32))
        self._zero_point = nodes.weight("zero_point", np.array(128, np.uint8))
        self._last_axis = nodes.weight("last_axis", np.array([-1], np.int64))

    def linear(self, x: str, name: str, weight: Tensor, bias: Tensor | None = None) -> str:
        rows, scale = self._quantise(x)
        eight_bits = quantise(weight)
        if self._tiled:
            self._write_own(name, eight_bits[0])
        product = self._nodes.op("Mul", self._multiply(rows, name, eight_bits), self._as_column(scale))
        return _biased(self._nodes, product, name, bias)

    def feed_forward(self, x: str, name: str, gate: Tensor, up: Tensor, down: Tensor) -> str:
        # `up` keeps its row scale to itself until after `down`, where it is one number a row: a wide Mul saved.
        rows, scale = self._quantise(x)
        column = self._as_column(scale)
        wide = (quantise(gate), quantise(up))
        if self._tiled:
            self._write_own(f"{name}_wide", in_turn(wide[0][0], wide[1][0]))
            self._nodes.kernel_weight(f"{name}_wide_scale", in_turn(wide[0][1], wide[1][1]))
        gated = silu(self._nodes, self._nodes.op("Mul", self._multiply(rows, f"{name}_gate", wide[0]), column))
        unscaled = self._nodes.op("Mul", gated, self._multiply(rows, f"{name}_up", wide[1]))
        inner, inner_scale = self._quantise(unscaled)
        both = self._as_column(self._nodes.op("Mul", inner_scale, scale))
        narrow = quantise(down)
        if self._tiled:
            self._write_own(f"{name}_down", narrow[0])
        return self._nodes.op("Mul", self._multiply(inner, f"{name}_down", narrow), both)

    def _write_own(self, name: str, weight: Int8s) -> None:
        self._nodes.kernel_weight(f"{name}_tiles", in_tiles(weight))
        self._nodes.kernel_weight(f"{name}_offset", offsets(weight))

    def _quantise(self, x: str) -> tuple[str, str]:
        """A row of zeros has scale 0: whatever the rounding makes of 0/0, it is multiplied by 0 in the end."""
        op = self._nodes.op
        largest = op("ReduceMax", op("Abs", x), self._last_axis, keepdims=0)
        scale = op("Mul", largest, self._per_127)
        zero_points = op("Expand", self._zero_point, op("Shape", scale))
        return op("QuantizeLinear", x, scale, zero_points, axis=0), scale

    def _multiply(self, rows: str, name: str, eight_bits: tuple[Int8s, Tensor]) -> str:
        weight, scale = eight_bits
        inputs = (
            self._nodes.weight(name, weight.T),
            self._one,
            self._nodes.weight(f"{name}_scale", scale),
            self._zero_point,
        )
        return self._nodes.op("MatMulIntegerToFloat", rows, *inputs, domain=MICROSOFT)

    def _as_column(self, scale: str) -> str:
        return self._nodes.op("Unsqueeze", scale, self._last_axis)


def quantise(weight: Tensor) -> tuple[Int8s, Tensor]:
    """[out, in] in 8 bits, and a scale for each output."""
    scale = np.maximum(np.abs(weight).max(axis=1) / np.float32(127), np.finfo(np.float32).tiny)
    return np.rint(weight / scale[:, None]).astype(np.int8), scale.astype(np.float32)


def _biased(nodes: NodeWriter, product: str, name: str, bias: Tensor | None) -> str:
    """A bias stays float32 in each precision: qwen's reach into the hundreds, where 8 bits would leave little."""
    return product if bias is None else nodes.op("Add", product, nodes.weight(f"{name}_bias", bias))


def silu(nodes: NodeWriter, x: str) -> str:
    return nodes.op("QuickGelu", x, domain=MICROSOFT, alpha=1.0)
