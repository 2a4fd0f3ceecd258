"""A call's lines as the inputs of the graph, which build/graph.py describes. Pure: arrays in, arrays out."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ostraka_worker.engine import Line, Memory

Int32s = npt.NDArray[np.int32]
Inputs = dict[str, npt.NDArray[np.generic]]

CHUNK_TOKENS = 32
"""Where there are several lines the long ones are cut: padded to the longest, all would cost what it costs."""
NOT_RESUMED: Inputs = {
    "resumes": np.array(False),  # noqa: FBT003
    "gathers": np.array(False),  # noqa: FBT003
    "keys": np.zeros((1, 1), np.int32),
    "mask": np.zeros((1, 1, 1, 1), np.float32),
}


NO_PARENT = -1


@dataclass(frozen=True, slots=True)
class Packed:
    """`past` are the memories whose first rows precede the call's own, in this order. `starts`: each line's row."""

    inputs: Inputs
    past: tuple[tuple[Memory, int], ...]
    starts: Int32s


def pack(lines: Sequence[Line]) -> Packed:
    """Token ids are copied once, into the call's rows. Where nobody is answered, the first line is: no row at all would
    be a shape that reductions do not take."""
    starts, lengths = _rows(lines)
    inputs = _tokens(lines, starts, lengths)
    if all(line.past is None and line.parent is None for line in lines):
        ends = lengths - np.int32(1)
        positions = np.concatenate([np.arange(length) for length in lengths])
        apart = {"ends": ends, "longest": np.array(lengths.max(), np.int32), "positions": positions[:, None]}
        return Packed(inputs | _pad(starts, lengths, 1) | apart | NOT_RESUMED, (), starts)
    resumed, past = _resume(lines, starts)
    return Packed(inputs | resumed, past, starts)


def pack_lines(lines: Sequence[Line]) -> Packed:
    """For the graph's variants with our own kernels, which find each line's keys themselves."""
    starts, lengths = _rows(lines)
    past, offsets = _past(lines)
    described = np.empty((len(lines), 5), np.int32)
    firsts: list[int] = []
    positions: list[npt.NDArray[np.int64]] = []
    for index, line in enumerate(lines):
        before = 0 if line.parent is None else firsts[line.parent] + len(lines[line.parent].tokens)
        firsts.append(before + line.past_tokens)
        offset = offsets[id(line.past)] if line.past is not None else 0
        parent = NO_PARENT if line.parent is None else line.parent
        described[index] = starts[index], lengths[index], offset, line.past_tokens, parent
        positions.append(np.arange(firsts[-1], firsts[-1] + len(line.tokens)))
    inputs: Inputs = {"lines": described, "positions": np.concatenate(positions)[:, None]}
    return Packed(_tokens(lines, starts, lengths) | inputs, past, starts)


def _rows(lines: Sequence[Line]) -> tuple[Int32s, Int32s]:
    """Each line's first row, and how many."""
    lengths = np.array([len(line.tokens) for line in lines], np.int32)
    return np.cumsum(lengths, dtype=np.int32) - lengths, lengths


def _tokens(lines: Sequence[Line], starts: Int32s, lengths: Int32s) -> Inputs:
    answered = [index for index, line in enumerate(lines) if line.is_answered]
    return {
        "token_ids": np.concatenate([line.tokens for line in lines], dtype=np.int32, casting="unsafe"),
        "last": (starts + lengths - np.int32(1))[answered or [0]],
    }


def _pad(starts: Int32s, lengths: Int32s, least: int) -> Inputs:
    columns = np.arange(max(least, int(lengths.max())), dtype=np.int32)
    inside = columns < lengths[:, None]
    return {
        "pad": np.where(inside, starts[:, None] + columns, np.int32(0)),
        "unpad": np.flatnonzero(inside).astype(np.int32),
    }


def _resume(lines: Sequence[Line], starts: Int32s) -> tuple[Inputs, tuple[tuple[Memory, int], ...]]:
    past, places = _places(lines, starts)
    whole = len(lines) == 1
    cut_starts, cut_lengths, cut_keys = [], [], []
    for line, start, path in zip(lines, starts.tolist(), places, strict=True):
        before = len(path) - len(line.tokens)
        step = len(line.tokens) if whole else CHUNK_TOKENS
        for first in range(0, len(line.tokens), step):
            length = min(step, len(line.tokens) - first)
            cut_starts.append(start + first)
            cut_lengths.append(length)
            cut_keys.append(path[: before + first + length])
    lengths = np.array(cut_lengths, np.int32)
    seen = np.array([len(keys) for keys in cut_keys], np.int32)
    keys = np.zeros((len(seen), int(seen.max())), np.int32)
    for row, line_keys in zip(keys, cut_keys, strict=True):
        row[: len(line_keys)] = line_keys
    # Two rows at least: a product of a single row takes another kernel, and other roundings.
    padded = _pad(np.array(cut_starts, np.int32), lengths, 2)
    offsets = np.arange(padded["pad"].shape[1], dtype=np.int32)
    positions = np.minimum(seen - lengths + offsets[:, None], seen - 1).T
    mask = np.where(np.arange(keys.shape[1]) <= positions[:, :, None], np.float32(0), np.float32(-np.inf))
    inputs: Inputs = {
        "positions": positions.reshape(-1)[padded["unpad"]].astype(np.int64)[:, None],
        "ends": np.zeros(1, np.int32),
        "longest": np.array(1, np.int32),
        "resumes": np.array(True),  # noqa: FBT003
        "gathers": np.array(not whole),
        "keys": keys,
        "mask": mask[:, None],
    }
    return padded | inputs, past


def _past(lines: Sequence[Line]) -> tuple[tuple[tuple[Memory, int], ...], dict[int, int]]:
    """The call's past, and the row in it at which each memory, by its id, begins."""
    longest: dict[int, tuple[Memory, int]] = {}
    for line in lines:
        if line.past is not None:
            memory, tokens = longest.get(id(line.past), (line.past, 0))
            longest[id(line.past)] = (memory, max(tokens, line.past_tokens))
    offsets, total = {}, 0
    for memory, tokens in longest.values():
        offsets[id(memory)] = total
        total += tokens
    return tuple(longest.values()), offsets


def _places(lines: Sequence[Line], starts: Int32s) -> tuple[tuple[tuple[Memory, int], ...], list[Int32s]]:
    """The call's past, and for each line where the tokens from its prompt's first to its own last lie."""
    past, offsets = _past(lines)
    total = sum(tokens for _, tokens in past)
    places: list[Int32s] = []
    for line, start in zip(lines, starts.tolist(), strict=True):
        own = np.arange(total + start, total + start + len(line.tokens), dtype=np.int32)
        if line.parent is not None:
            before = places[line.parent]
        else:
            offset = offsets[id(line.past)] if line.past is not None else 0
            before = np.arange(offset, offset + line.past_tokens, dtype=np.int32)
        places.append(np.concatenate([before, own]))
    return past, places
