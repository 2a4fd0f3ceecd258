"""Writes a checkpoint as an ONNX graph: a call's rows in, two logits for each answer and the rows' keys and values out.

Rows lie end to end without padding; only attention sees them padded, in lines. It has two branches, which give the same
bits (docs/engine.md): lines that begin with their sequence go through GroupQueryAttention, which skips what a row must
not see; a call with earlier keys and values, or with lines that share rows, gathers each line's keys by their places.
"""

from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper

from ostraka_shared.model_folder import GRAPH_FILE, WEIGHTS_FILE
from ostraka_worker.build.decoder import Checkpoint, Config
from ostraka_worker.build.kernel_graphs import (
    NO_BIAS,
    NO_HEAD_NORMS,
    Layer,
    own_weights,
    variants_for,
    with_kernels,
)
from ostraka_worker.build.linears import Fp32Linears, Int8Linears, Linears
from ostraka_worker.build.nodes import MICROSOFT, NodeWriter
from ostraka_worker.build.progress import Progress
from ostraka_worker.kernels import graph_for


def write_graph(
    checkpoint: Checkpoint, answer_token_ids: tuple[int, int], precision: str, folder: Path, progress: Progress
) -> None:
    """Writes model.onnx, its variants for our kernels, and their common model.onnx.data into the folder."""
    config = checkpoint.config
    progress.begin(f"writing the {precision} graph", config.layers, " layers")
    data_path = folder / WEIGHTS_FILE
    own = own_weights(config, precision, in_bf16=checkpoint.in_bf16)
    with data_path.open("wb") as data:
        nodes = NodeWriter(data, data_path)
        linears = _linears(precision, nodes, own)
        writer = _DecoderWriter(checkpoint, nodes, linears)
        layers = writer.write(answer_token_ids, progress)
        if own:
            writer.write_absent()
    model = nodes.model(_inputs(config), _outputs(config))
    graph = folder / GRAPH_FILE
    graph.write_bytes(model.SerializeToString())
    for variant in variants_for(config, precision, own):
        made = with_kernels(model, nodes.kernel_tensors, layers, config, variant)
        graph_for(graph, variant.kind).write_bytes(made.SerializeToString())


def _linears(precision: str, nodes: NodeWriter, own: str) -> Linears:
    if precision == "int8":
        return Int8Linears(nodes, tiled=bool(own))
    return Fp32Linears(nodes, own)


def _inputs(config: Config) -> list[onnx.ValueInfoProto]:
    """`rows` are the tokens read by the call; a line is a run of them, padded to the longest.

    positions: each row's place in its own prompt; pad: the row in each place of each line (any row past its end);
    unpad: each row's padded place; last: the rows to answer after. Only without `resumes`: ends, each line's tokens
    less one, and longest, tokens of the longest. Only with `resumes`: keys, for each line the places, in the past's
    rows and then this call's, of the tokens up to its end; mask, 0 where a row may look and -inf where not; past_*;
    gathers, false where a single line has all of them in order.
    """
    info, int32, floats = helper.make_tensor_value_info, TensorProto.INT32, TensorProto.FLOAT
    shapes: dict[str, list[str]] = {
        "token_ids": ["rows"],
        "pad": ["lines", "longest"],
        "unpad": ["rows"],
        "last": ["answers"],
        "ends": ["lines"],
        "longest": [],
        "keys": ["lines", "keys"],
    }
    width = config.key_width
    return [
        *(info(name, int32, shape) for name, shape in shapes.items()),
        info("positions", TensorProto.INT64, ["rows", 1]),
        info("resumes", TensorProto.BOOL, []),
        info("gathers", TensorProto.BOOL, []),
        info("mask", floats, ["lines", 1, "longest", "keys"]),
        *(info(f"past_{name}", floats, ["past", width]) for name in kept_names(config.layers)),
    ]


def _outputs(config: Config) -> list[onnx.ValueInfoProto]:
    """The rotated keys and the values of each row are only computed apart where the caller asks for them."""
    info, width = helper.make_tensor_value_info, config.key_width
    kept = [info(name, TensorProto.FLOAT, ["rows", width]) for name in kept_names(config.layers)]
    return [info("logits", TensorProto.FLOAT, ["answers", 2]), *kept]


def kept_names(layers: int) -> list[str]:
    return [f"{name}_{index}" for index in range(layers) for name in ("key", "value")]


class _DecoderWriter:
    def __init__(self, checkpoint: Checkpoint, nodes: NodeWriter, linears: Linears) -> None:
        self._checkpoint = checkpoint
        self._config = checkpoint.config
        self._nodes = nodes
        self._linears = linears
        cosines, sines = rotary_tables(checkpoint.config)
        self._cosines = nodes.weight("cosines", cosines)
        self._sines = nodes.weight("sines", sines)
        query, key = self._config.query_width, self._config.key_width
        shapes = {
            "as_rows": [-1, query],
            "as_key_rows": [-1, key],
            "as_turned": [-1, 1, query + key],
            "turned_and_not": [query + key, key],
            "query_and_key": [query, key],
            "first_axis": [0],
        }
        if self._config.has_head_norms:
            shapes["as_heads"] = [-1, self._config.heads + self._config.kv_heads, self._config.head_dims]
        for name, shape in shapes.items():
            nodes.weight(name, np.array(shape, np.int64))

    def write(self, answer_token_ids: tuple[int, int], progress: Progress) -> list[Layer]:
        op, config = self._nodes.op, self._config
        layers: list[Layer] = []
        residual = op("Gather", self._embedding(), "token_ids")
        normed = self._first_norm(residual)
        for index in range(config.layers):
            query, key, value, attended = self._attention(index, normed)
            selected, before = attended, residual
            if index == config.layers - 1:
                # Only each prompt's last row is read from here on, so the last layer's wide half runs on those alone.
                selected, before = op("Gather", attended, "last"), op("Gather", residual, "last")
            following = self._feed_forward(index, selected, before)
            layers.append(Layer(normed, query, key, value, attended, selected, before, *following))
            normed, residual = following
            progress.advance()
        self._answers(normed, answer_token_ids)
        return layers

    def write_absent(self) -> None:
        """In place of what this architecture does not have."""
        config = self._config
        if not config.has_biases:
            self._nodes.kernel_weight(NO_BIAS, np.zeros(config.query_width + 2 * config.key_width, np.float32))
        if not config.has_head_norms:
            self._nodes.kernel_weight(NO_HEAD_NORMS, np.zeros((0, config.head_dims), np.float32))

    def _embedding(self) -> str:
        shape = (self._config.vocabulary_size, self._config.hidden)
        return self._nodes.weight_in_pieces("embedding", shape, self._checkpoint.embedding_pieces())

    def _first_norm(self, x: str) -> str:
        gain = self._gain("norm_0", self._checkpoint.layer(0, "attn_norm"))
        return self._nodes.op("SimplifiedLayerNormalization", x, gain, axis=-1, epsilon=self._config.norm_epsilon)

    def _attention(self, index: int, normed: str) -> tuple[str, str, str, str]:
        """Query, key, value and the heads' output, one row a row."""
        op, config = self._nodes.op, self._config
        parts = ("attn_q", "attn_k", "attn_v")
        packed, bias = self._checkpoint.packed(index, parts), self._checkpoint.packed_bias(index, parts)
        mixed = self._linears.linear(normed, f"qkv_{index}", packed, bias)
        straight, value = self._nodes.split(mixed, "turned_and_not", ["", f"value_{index}"])
        if config.has_head_norms:
            straight = self._norm_heads(index, straight)
        # Each row is a batch of one: the operator refuses more places in a batch than the model's context has.
        tables = ("positions", self._cosines, self._sines)
        heads = config.heads + config.kv_heads
        turned = op("RotaryEmbedding", op("Reshape", straight, "as_turned"), *tables, domain=MICROSOFT, num_heads=heads)
        query, key = self._nodes.split(turned, "query_and_key", ["", ""])
        query = op("Reshape", query, "as_rows")
        key = op("Reshape", key, "as_key_rows", output=f"key_{index}")
        attended = self._nodes.choose(
            "resumes", lambda: self._resumed(index, query, key, value), lambda: self._fresh(query, key, value)
        )
        return query, key, value, attended

    def _norm_heads(self, index: int, straight: str) -> str:
        """Query and key have a gain each: one norm without any, then one product, does both."""
        op, config, layer = self._nodes.op, self._config, self._checkpoint.layer
        heads = (("attn_q_norm", config.heads), ("attn_k_norm", config.kv_heads))
        gains = np.concatenate([np.tile(layer(index, name), (count, 1)) for name, count in heads])
        even = self._nodes.weight(f"even_{index}", np.ones(config.head_dims, np.float32))
        rows = op("Reshape", straight, "as_heads")
        normed = op("SimplifiedLayerNormalization", rows, even, axis=-1, epsilon=config.norm_epsilon)
        return op("Mul", normed, self._nodes.weight(f"head_norm_{index}", gains))

    def _fresh(self, query: str, key: str, value: str) -> str:
        op, config = self._nodes.op, self._config
        padded = [op("Gather", rows, "pad") for rows in (query, key, value)]
        heads, kv_heads = config.heads, config.kv_heads
        inputs = (*padded, "", "", "ends", "longest")
        attended = op("GroupQueryAttention", *inputs, domain=MICROSOFT, num_heads=heads, kv_num_heads=kv_heads)
        return op("Gather", op("Reshape", attended, "as_rows"), "unpad")

    def _resumed(self, index: int, query: str, key: str, value: str) -> str:
        """A line's keys stand in the order of their positions, whether kept or new: so the sums of a row are the same
        sums, added in the same order, as if its prompt had been read at once."""
        op, config = self._nodes.op, self._config
        keys = op("Concat", f"past_key_{index}", key, axis=0)
        values = op("Concat", f"past_value_{index}", value, axis=0)
        heads, kv_heads = config.heads, config.kv_heads
        padded = op("Gather", query, "pad")

        def attend(kind: str, places: str) -> str:
            rows = (op(kind, keys, places), op(kind, values, places))
            return op("Attention", padded, *rows, "mask", q_num_heads=heads, kv_num_heads=kv_heads)

        # A lone line's keys lie as it wants them: to gather them too took 5 to 8 ms of 50, after 500 tokens.
        attended = self._nodes.choose(
            "gathers", lambda: attend("Gather", "keys"), lambda: attend("Unsqueeze", "first_axis")
        )
        return op("Gather", op("Reshape", attended, "as_rows"), "unpad")

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
        rows = self._nodes.weight("answers", self._checkpoint.head_rows(answer_token_ids))
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
