"""Whether the installed runtime multiplies int8 as fast as this CPU can. One that does not use the CPU's instructions
answers the same, only slowly, and nobody would know. For models whose products are the runtime's: see kernels."""

import base64
import time
from pathlib import Path

import numpy as np
import structlog

from ostraka_worker.onnx_engine import open_session

log = structlog.get_logger()

ROWS, INNER, COLUMNS = 128, 576, 1536
"""As the embedded model's feed-forward layers in a call of 128 tokens."""
FP32_GEMM = base64.b64decode(
    "CAk6lgEKOgoFc2hhcGUSAWIiD0NvbnN0YW50T2ZTaGFwZSodCgV2YWx1ZSoRCAEQASIEAACAP0IFdmFsdWWgAQQKEQoBYQoBYhIBYyIGTWF0TXVs"
    "EgRnZW1tKhEIAhAHOgTABIAMQgVzaGFwZVoVCgFhEhAKDggBEgoKAwiAAQoDCMAEYhUKAWMSEAoOCAESCgoDCIABCgMIgAxCBAoAEBI="
)
INT8_GEMM = base64.b64decode(
    "CAk6mgEKNwoFc2hhcGUSAWIiD0NvbnN0YW50T2ZTaGFwZSoaCgV2YWx1ZSoOCAEQAyoBAUIFdmFsdWWgAQQKGAoBYQoBYhIBYyINTWF0TXVsSW50"
    "ZWdlchIEZ2VtbSoRCAIQBzoEwASADEIFc2hhcGVaFQoBYRIQCg4IAhIKCgMIgAEKAwjABGIVCgFjEhAKDggGEgoKAwiAAQoDCIAMQgQKABAS"
)
"""ONNX graphs `c = a x b` with constant weights b. A test makes them anew; here, that would bring the onnx package."""
GAINS = (("amx_int8", 4.5), ("avx512_vnni", 2.0), ("avx_vnni", 2.0))
"""What a CPU with that flag must reach. With AMX, onnxruntime 1.31.1 has 6.4 to 8.0 (its neighbours busy or not), its
VNNI path 3.1 to 3.4: as 1.32.0, where the process may only use one CPU when it is loaded."""
CALLS = 20
"""Of each, in turn, of which the fastest counts: 33 ms in all."""
TRIES = 3


def warn_if_slow(runtime: str) -> None:
    """Once a load. A neighbour that takes the CPU for a moment is given two more chances."""
    wanted = wanted_gain(Path("/proc/cpuinfo").read_text(encoding="utf-8"))
    gain = 0.0
    for _ in range(TRIES):
        if (gain := max(gain, measure_gain())) >= wanted:
            return
    hint = "another version may be faster; see constraints.txt for the one that was measured"
    log.warning("int8_is_slow", runtime=runtime, times_fp32=round(gain, 1), wanted=wanted, hint=hint)


def wanted_gain(cpu_info: str) -> float:
    """0 for a CPU of which nothing is known."""
    flags = set(cpu_info.split())
    return next((gain for flag, gain in GAINS if flag in flags), 0.0)


def measure_gain() -> float:
    """How many times as fast as in fp32 the same product is in int8."""
    products = [
        (open_session(FP32_GEMM), np.ones((ROWS, INNER), np.float32)),
        (open_session(INT8_GEMM), np.ones((ROWS, INNER), np.uint8)),
    ]
    fastest = [float("inf"), float("inf")]
    for _ in range(CALLS):
        for number, (session, a) in enumerate(products):
            begun = time.perf_counter()
            session.run(None, {"a": a})
            fastest[number] = min(fastest[number], time.perf_counter() - begun)
    return fastest[0] / fastest[1]
