"""Packed weights, unpacked value by value from the format's description, to judge the reading of GGUF files by.

Blocks are random bytes with sane scales, so every bit of every field is put to work.
"""

import numpy as np

ROW = 256


def half(raw: bytes) -> float:
    return float(np.frombuffer(raw, "<f2")[0])


def q4_0(block: bytes) -> list[float]:
    scale, nibbles = half(block[:2]), block[2:]
    return [scale * ((n & 15) - 8) for n in nibbles] + [scale * ((n >> 4) - 8) for n in nibbles]


def q4_1(block: bytes) -> list[float]:
    scale, least, nibbles = half(block[:2]), half(block[2:4]), block[4:]
    return [scale * (n & 15) + least for n in nibbles] + [scale * (n >> 4) + least for n in nibbles]


def q5_0(block: bytes) -> list[float]:
    scale, fifth, nibbles = half(block[:2]), int.from_bytes(block[2:6], "little"), block[6:]
    low = [(n & 15) | (fifth >> i & 1) << 4 for i, n in enumerate(nibbles)]
    high = [(n >> 4) | (fifth >> (i + 16) & 1) << 4 for i, n in enumerate(nibbles)]
    return [scale * (value - 16) for value in low + high]


def q5_1(block: bytes) -> list[float]:
    scale, least, fifth, nibbles = half(block[:2]), half(block[2:4]), int.from_bytes(block[4:8], "little"), block[8:]
    low = [(n & 15) | (fifth >> i & 1) << 4 for i, n in enumerate(nibbles)]
    high = [(n >> 4) | (fifth >> (i + 16) & 1) << 4 for i, n in enumerate(nibbles)]
    return [scale * value + least for value in low + high]


def q8_0(block: bytes) -> list[float]:
    return [half(block[:2]) * value for value in np.frombuffer(block[2:], np.int8).tolist()]


def scales_of_six_bits(packed: bytes) -> list[tuple[int, int]]:
    """The scale and the minimum of each of 8 groups, in 12 bytes."""
    pairs = [(packed[i] & 63, packed[i + 4] & 63) for i in range(4)]
    for i in range(4):
        scale = packed[i + 8] & 15 | packed[i] >> 6 << 4
        least = packed[i + 8] >> 4 | packed[i + 4] >> 6 << 4
        pairs.append((scale, least))
    return pairs


def q4_k(block: bytes) -> list[float]:
    scale, least, nibbles = half(block[:2]), half(block[2:4]), block[16:]
    values: list[float] = []
    for group, (times, minus) in enumerate(scales_of_six_bits(block[4:16])):
        nibbles_here = nibbles[group // 2 * 32 : group // 2 * 32 + 32]
        values += [scale * times * (n >> 4 if group % 2 else n & 15) - least * minus for n in nibbles_here]
    return values


def q5_k(block: bytes) -> list[float]:
    scale, least, fifths, nibbles = half(block[:2]), half(block[2:4]), block[16:48], block[48:]
    values: list[float] = []
    for group, (times, minus) in enumerate(scales_of_six_bits(block[4:16])):
        for i, n in enumerate(nibbles[group // 2 * 32 : group // 2 * 32 + 32]):
            value = (n >> 4 if group % 2 else n & 15) | (fifths[i] >> group & 1) << 4
            values.append(scale * times * value - least * minus)
    return values


def q6_k(block: bytes) -> list[float]:
    low, high, scales, scale = block[:128], block[128:192], np.frombuffer(block[192:208], np.int8), half(block[208:])
    values: list[float] = []
    for at in range(ROW):
        part, i = divmod(at, 128)
        quarter, i = divmod(i, 32)
        nibble = low[part * 64 + i + (32 if quarter % 2 else 0)] >> (4 if quarter >= 2 else 0) & 15
        value = nibble | (high[part * 32 + i] >> 2 * quarter & 3) << 4
        values.append(scale * int(scales[at // 16]) * (value - 32))
    return values


# Values and bytes of a block, the places of its float16 numbers, and how it is unpacked.
KINDS = {
    "Q4_0": (32, 18, (0,), q4_0),
    "Q4_1": (32, 20, (0, 2), q4_1),
    "Q5_0": (32, 22, (0,), q5_0),
    "Q5_1": (32, 24, (0, 2), q5_1),
    "Q8_0": (32, 34, (0,), q8_0),
    "Q4_K": (256, 144, (0, 2), q4_k),
    "Q5_K": (256, 176, (0, 2), q5_k),
    "Q6_K": (256, 210, (208,), q6_k),
}


def random_rows(kind: str, rows: int, columns: int, seed: int = 1) -> tuple[np.ndarray, np.ndarray]:
    """The packed bytes, [rows, bytes of a row], and the values they stand for."""
    values, size, halves, unpack = KINDS[kind]
    random = np.random.default_rng(seed)
    blocks = random.integers(0, 256, (rows * columns // values, size), np.uint8)
    for at in halves:
        numbers = random.uniform(0.0005, 0.002, len(blocks)).astype("<f2")
        blocks[:, at : at + 2] = numbers.view(np.uint8).reshape(-1, 2)
    unpacked = [unpack(block.tobytes()) for block in blocks]
    return blocks.reshape(rows, -1), np.array(unpacked, np.float32).reshape(rows, columns)
