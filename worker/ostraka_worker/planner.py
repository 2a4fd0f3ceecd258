"""How a batch's requests become model calls. Pure: tokens and lengths in, steps and groups of them out.

A request is read in rounds of steps; a step needs what the rounds before it left, and nothing of its own round. A call
holds several steps of one round, of any requests. How it is cut changes no answer (docs/engine.md), only the time.
"""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

from ostraka_shared.messages import TOKEN_BYTES
from ostraka_shared.reading_rules import LEAST_PREFIX_TOKENS, LEAST_SHARED_TOKENS
from ostraka_worker.tree import sort_prompts

PIECE_TOKENS = 192
"""The most read in one step, and so the longest that others must wait for one. Prompts of 2,000 tokens in int8, all of
it and the longest call: 128 tokens 3.16 and 0.28 s, 192 2.78 and 0.16, 256 2.83 and 0.21, 384 2.75 and 0.30."""
LONGEST_REST_TOKENS = 128
"""After a kept state: a longer rest of the prefix (the options of a choice) is read apart, once."""
JOINED_PAST_TOKENS = 512
"""The most that is copied so that requests with different states share a call: 2 ms, where a call costs 15."""


@dataclass(frozen=True, slots=True)
class Request:
    """One request's tokens. `cached`: how many of the prefix are in a memory already."""

    prefix: bytes
    suffixes: tuple[bytes, ...]
    state: int
    cached: int = 0

    @property
    def prefix_tokens(self) -> int:
        return len(self.prefix) // TOKEN_BYTES

    def prompt_tokens(self, index: int) -> int:
        return self.prefix_tokens + len(self.suffixes[index]) // TOKEN_BYTES


@dataclass(frozen=True, slots=True)
class Step:
    """Read from position `past` on, which is where `owner`'s memory ends: the prefix's (None) or that of one prompt.

    Either to `stop`, and into that memory; or to the ends of `prompts`, which are answered: each by its index and the
    tokens it shares with the one before it. `tokens` is how many are read.
    """

    past: int
    tokens: int
    stop: int = 0
    owner: int | None = None
    prompts: tuple[tuple[int, int], ...] = ()


def plan_request(request: Request, budget_tokens: int) -> list[list[Step]]:
    shares = request.prefix_tokens >= LEAST_PREFIX_TOKENS
    if len(request.suffixes) == 1 or not shares:
        past = request.cached if shares else 0
        return _side_by_side([_plan_prompt(request, index, past) for index in range(len(request.suffixes))])
    pieces: list[Step] = []
    past = request.cached
    if not is_resumed_as_it_is(request):
        pieces = _plan_pieces(past, request.prefix_tokens, None)
        past = request.prefix_tokens
    return [[piece] for piece in pieces] + _plan_trees(request, past, budget_tokens)


def _side_by_side(chains: Sequence[Sequence[Step]]) -> list[list[Step]]:
    """Chains that do not need each other, as rounds."""
    return [[step for step in steps if step] for steps in itertools.zip_longest(*chains)]


def is_resumed_as_it_is(request: Request) -> bool:
    """The kept memory serves the questions as it lies: nothing is to be added to it, and so nothing to be copied."""
    rest = request.prefix_tokens - request.cached
    return 0 < request.cached >= request.state and rest <= LONGEST_REST_TOKENS


def plan_calls(lengths: Sequence[int], budget_tokens: int) -> list[list[int]]:
    """Groups of indexes, each group one call. Every one is in exactly one group.

    Sorted by length, so that attention pads little: unsorted ragged calls lose 1.4-1.8x. One of the budget's size
    or more gets a call of its own: past about 400 tokens a call gains nothing from company.
    """
    calls: list[list[int]] = []
    used = budget_tokens
    for index in sorted(range(len(lengths)), key=lengths.__getitem__):
        if used + lengths[index] > budget_tokens:
            calls.append([])
            used = 0
        calls[-1].append(index)
        used += lengths[index]
    return calls


def plan_resumed(steps: Sequence[tuple[Step, int]], budget_tokens: int) -> list[list[int]]:
    """Groups of steps that resume a memory, each step with a number that names it; in order.

    Those that share a memory share a call as others do; different memories only while they are short.
    """
    calls: list[list[int]] = []
    used, joined = budget_tokens, dict[int, int]()
    for index in sorted(range(len(steps)), key=lambda index: (steps[index][1], index)):
        step, memory = steps[index]
        past = joined | {memory: max(joined.get(memory, 0), step.past)}
        fits = len(past) == 1 or sum(past.values()) <= JOINED_PAST_TOKENS
        if used + step.tokens > budget_tokens or not fits:
            calls.append([])
            used, past = 0, {memory: step.past}
        calls[-1].append(index)
        used += step.tokens
        joined = past
    return calls


def _plan_prompt(request: Request, index: int, past: int) -> list[Step]:
    """One prompt for itself, in pieces where it is long."""
    tokens = request.prompt_tokens(index)
    pieces = _plan_pieces(past, tokens, index)
    last = pieces.pop()
    return [*pieces, Step(last.past, last.tokens, owner=index, prompts=((index, 0),))]


def _plan_pieces(past: int, stop: int, owner: int | None) -> list[Step]:
    """Of nearly equal size."""
    count = -(-(stop - past) // PIECE_TOKENS)
    borders = [past + (stop - past) * number // count for number in range(count + 1)] if count else []
    return [Step(first, last - first, last, owner) for first, last in itertools.pairwise(borders)]


def _plan_trees(request: Request, past: int, budget_tokens: int) -> list[list[Step]]:
    """The prompts' rests as trees of at most the budget, or of one prompt; what is too long for a step, for itself."""
    beyond = request.prefix_tokens - past
    steps: list[Step] = []
    tree: list[tuple[int, int]] = []
    used = 0
    short, long = list[int](), list[int]()
    for index in range(len(request.suffixes)):
        (long if request.prompt_tokens(index) - past > PIECE_TOKENS else short).append(index)
    for index, shared in sort_prompts(request.suffixes, short):
        tokens, saved = request.prompt_tokens(index) - past, shared + beyond
        added = tokens - saved if tree and saved >= LEAST_SHARED_TOKENS else tokens
        if tree and used + added > budget_tokens:
            steps.append(Step(past, used, prompts=tuple(tree)))
            tree, used, added = [], 0, tokens
        tree.append((index, saved))
        used += added
    if tree:
        steps.append(Step(past, used, prompts=tuple(tree)))
    return _side_by_side([*([step] for step in steps), *(_plan_prompt(request, index, past) for index in long)])
