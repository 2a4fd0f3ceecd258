"""What this machine's matrix products reach in the runtime: one product of the size of a feed-forward layer, alone."""

import time

import numpy as np
import onnxruntime as ort
from onnx import TensorProto, helper, numpy_helper

from ostraka_worker.build.nodes import IR_VERSION, OPSET

ROWS, INNER, OUTER = 256, 576, 1536
OPERATORS = {"fp32": ("MatMul", TensorProto.FLOAT, np.float32), "int8": ("MatMulInteger", TensorProto.UINT8, np.int8)}


def measure_peak(precision: str, rounds: int = 60) -> float:
    """The best of the rounds, in GFLOP/s (int8: GOP/s) of process CPU time."""
    operator, kind, weight_type = OPERATORS[precision]
    result = TensorProto.FLOAT if precision == "fp32" else TensorProto.INT32
    weight = numpy_helper.from_array(np.ones((INNER, OUTER), weight_type), "weight")
    graph = helper.make_graph(
        [helper.make_node(operator, ["x", "weight"], ["y"])],
        "product",
        [helper.make_tensor_value_info("x", kind, [ROWS, INNER])],
        [helper.make_tensor_value_info("y", result, [ROWS, OUTER])],
        [weight],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR_VERSION)
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    session = ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    inputs = {"x": np.ones((ROWS, INNER), np.float32 if precision == "fp32" else np.uint8)}
    taken = []
    for _ in range(rounds):
        begun = time.process_time()
        for _ in range(10):
            session.run(None, inputs)
        taken.append((time.process_time() - begun) / 10)
    return 2 * ROWS * INNER * OUTER / min(taken) / 1e9
