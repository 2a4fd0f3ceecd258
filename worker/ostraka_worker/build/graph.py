"""Writes a checkpoint as an ONNX graph that reads a call's prompts and returns two logits for each.

Prompts lie end to end in rows without padding; only attention sees them padded, one prompt a line. Measured against
one padded batch: 1.4-1.8x at ragged lengths, 5-20 % behind at equal ones. Against one row with a block mask: 2-3x.
"""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper

from ostraka_shared.model_folder import GRAPH_FILE, WEIGHTS_FILE
from ostraka_worker.build.checkpoint import Checkpoint, Config
from ostraka_worker.build.linears import Fp32Linears, Int8Linears, Linears
from ostraka_worker.build.nodes import MICROSOFT, NodeWriter
from ostraka_worker.build.progress import Progress

LINEARS: dict[str, Callable[[NodeWriter], Linears]] = {"fp32": Fp32Linears, "int8": Int8Linears}


def write_graph(
    checkpoint: Checkpoint, answer_token_ids: tuple[int, int], precision: str, folder: Path, progress: Progress
) -> None:
    """Writes model.onnx and model.onnx.data into the folder."""
    progress.begin(f"writing the {precision} graph", checkpoint.config.layers, " layers")
    data_path = folder / WEIGHTS_FILE
    with data_path.open("wb") as data:
        nodes = NodeWriter(data, data_path)
        writer = _DecoderWriter(checkpoint, nodes, LINEARS[precision](nodes))
        writer.write(answer_token_ids, progress)
    model = nodes.model(_inputs(), [helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["prompts", 2])])
    (folder / GRAPH_FILE).write_bytes(model.SerializeToString())


def _inputs() -> list[onnx.ValueInfoProto]:
    """`rows` are the call's tokens; a line of the padded form is one prompt, as long as the longest of the call.

    pad: for each padded place the row that fills it (any row past a prompt's end); unpad: each row's padded place;
    last: the row that ends each prompt; ends: each prompt's tokens less one; longest: tokens of the longest.
    """
    shapes: dict[str, list[str]] = {
        "token_ids": ["rows"],
        "pad": ["prompts", "longest"],
        "unpad": ["rows"],
        "last": ["prompts"],
        "ends": ["prompts"],
        "longest": [],
    }
    return [helper.make_tensor_value_info(name, TensorProto.INT32, shape) for name, shape in shapes.items()]


class _DecoderWriter:
    def __init__(self, checkpoint: Checkpoint, nodes: NodeWriter, linears: Linears) -> None:
        self._checkpoint = checkpoint
        self._config = checkpoint.config
        self._nodes = nodes
        self._linears = linears
        cosines, sines = rotary_tables(checkpoint.config)
        self._cosines = nodes.weight("cosines", cosines)
        self._sines = nodes.weight("sines", sines)
        self._as_rows = nodes.weight("as_rows", np.array([-1, self._config.heads * self._config.head_dims], np.int64))

    def write(self, answer_token_ids: tuple[int, int], progress: Progress) -> None:
        op, config = self._nodes.op, self._config
        residual = op("Gather", self._nodes.weight("embedding", self._checkpoint.embedding), "token_ids")
        normed = self._first_norm(residual)
        for index in range(config.layers):
            attended = self._attention(index, normed)
            if index == config.layers - 1:
                # Only each prompt's last row is read from here on, so the last layer's wide half runs on those alone.
                attended = op("Gather", attended, op("Gather", "unpad", "last"))
                residual = op("Gather", residual, "last")
            else:
                attended = op("Gather", attended, "unpad")
            normed, residual = self._feed_forward(index, attended, residual)
            progress.advance()
        self._answers(normed, answer_token_ids)

    def _first_norm(self, x: str) -> str:
        gain = self._gain("norm_0", self._checkpoint.layer(0, "attn_norm"))
        return self._nodes.op("SimplifiedLayerNormalization", x, gain, axis=-1, epsilon=self._config.norm_epsilon)

    def _attention(self, index: int, normed: str) -> str:
        """Returns the heads' output at every padded place, one row a place."""
        op, config = self._nodes.op, self._config
        packed = np.concatenate([self._checkpoint.layer(index, name) for name in ("attn_q", "attn_k", "attn_v")])
        padded = op("Gather", self._linears.linear(normed, f"qkv_{index}", packed), "pad")
        inputs = (padded, "", "", "", "", "ends", "longest", self._cosines, self._sines)
        heads, kv_heads = config.heads, config.kv_heads
        attended = op(
            "GroupQueryAttention", *inputs, domain=MICROSOFT, num_heads=heads, kv_num_heads=kv_heads, do_rotary=1
        )
        return op("Reshape", attended, self._as_rows)

    def _feed_forward(self, index: int, attended: str, residual: str) -> tuple[str, str]:
        """Returns the input of the next layer, normalised and as it is."""
        layer, epsilon = self._checkpoint.layer, self._config.norm_epsilon
        out = self._linears.linear(attended, f"out_{index}", layer(index, "attn_output"))
        gain = self._gain(f"ffn_norm_{index}", layer(index, "ffn_norm"))
        normed, residual = self._nodes.skip_norm(out, residual, gain, epsilon)
        weights = (layer(index, "ffn_gate"), layer(index, "ffn_up"), layer(index, "ffn_down"))
        fed = self._linears.feed_forward(normed, f"ffn_{index}", *weights)
        is_last = index == self._config.layers - 1
        following = self._checkpoint.tensors["output_norm.weight"] if is_last else layer(index + 1, "attn_norm")
        return self._nodes.skip_norm(fed, residual, self._gain(f"norm_{index + 1}", following), epsilon)

    def _answers(self, normed: str, answer_token_ids: tuple[int, int]) -> None:
        # Mul and ReduceSum, not MatMul: its kernel depends on the number of prompts and moved P(yes) by 1e-5.
        rows = self._nodes.weight("answers", self._checkpoint.head[list(answer_token_ids)])
        middle = self._nodes.weight("middle_axis", np.array([1], np.int64))
        last = self._nodes.weight("sum_axis", np.array([-1], np.int64))
        products = self._nodes.op("Mul", self._nodes.op("Unsqueeze", normed, middle), rows)
        self._nodes.op("ReduceSum", products, last, keepdims=0, output="logits")

    def _gain(self, name: str, gain: np.ndarray) -> str:
        return self._nodes.weight(name, gain)


def rotary_tables(config: Config) -> tuple[np.ndarray, np.ndarray]:
    """Cosine and sine of each position's angles, [context, half of a head]."""
    exponents = np.arange(0, config.head_dims, 2, dtype=np.float64) / config.head_dims
    angles = np.outer(np.arange(config.context_tokens, dtype=np.float64), config.rope_base**-exponents)
    return np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)
