"""Prompts as a prefix tree, so that what several begin with is read once. Pure: token bytes in, nodes out."""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ostraka_shared.reading_rules import LEAST_SHARED_TOKENS

_TOKEN = np.dtype("<u4")


@dataclass(frozen=True, slots=True)
class Node:
    """Tokens `first` to `stop` of `prompts[0]`, after those of the node at `parent`. `answers` end with this node."""

    parent: int | None
    first: int
    stop: int
    prompt: int
    answers: tuple[int, ...]


def common_tokens(one: bytes, other: bytes) -> int:
    length = min(len(one), len(other)) // _TOKEN.itemsize
    differing = np.flatnonzero(np.frombuffer(one, _TOKEN, length) != np.frombuffer(other, _TOKEN, length))
    return int(differing[0]) if len(differing) else length


def sort_prompts(prompts: Sequence[bytes], chosen: Sequence[int]) -> list[tuple[int, int]]:
    """(index, tokens it shares with the one before), those that share a beginning next to each other."""
    order = sorted(chosen, key=prompts.__getitem__)
    shared = [common_tokens(prompts[one], prompts[other]) for one, other in itertools.pairwise(order)]
    return list(zip(order, [0, *shared], strict=False))


def build_tree(prompts: Mapping[int, bytes], chosen: Sequence[tuple[int, int]]) -> list[Node]:
    """Of some prompts by their indexes, as `sort_prompts` gave them; each node after its parent. No prompt is empty."""
    nodes: list[Node] = []
    waiting: list[tuple[list[tuple[int, int]], int, int | None]] = [(list(chosen), 0, None)]
    while waiting:
        group, depth, parent = waiting.pop()
        for run in _runs(group, depth + LEAST_SHARED_TOKENS):
            first = run[0][0]
            tokens = len(prompts[first]) // _TOKEN.itemsize
            stop = min([tokens, *(shared for _, shared in run[1:])])
            ended = [index for index, _ in run if len(prompts[index]) == stop * _TOKEN.itemsize]
            nodes.append(Node(parent, depth, stop, first, tuple(ended)))
            if rest := [each for each in run if each[0] not in ended]:
                waiting.append((rest, stop, len(nodes) - 1))
    return nodes


def _runs(group: Sequence[tuple[int, int]], least: int) -> list[list[tuple[int, int]]]:
    """Neighbours that share at least so many tokens."""
    runs: list[list[tuple[int, int]]] = []
    for place, (index, shared) in enumerate(group):
        if place and shared >= least:
            runs[-1].append((index, shared))
        else:
            runs.append([(index, shared)])
    return runs
