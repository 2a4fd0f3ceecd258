"""One request on its way through its steps: which lines each step reads, and where what they leave is kept."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ostraka_shared.messages import TOKEN_BYTES
from ostraka_worker.engine import Engine, Line, Memory, TokenIds
from ostraka_worker.planner import Request, Step
from ostraka_worker.tree import build_tree


@dataclass(frozen=True, slots=True)
class StepLines:
    """`answers`: of each answered line, the prompts that end with it. A line's parent counts within the step."""

    lines: tuple[Line, ...]
    answers: tuple[tuple[int, ...], ...]


class Reading:
    """`cached` holds the first `request.cached` tokens of the prefix. `keeps_state`: its state is wanted afterwards."""

    def __init__(self, request: Request, cached: Memory | None, *, keeps_state: bool) -> None:
        self._request = request
        self._keeps_state = keeps_state and request.cached < request.state
        self._memories: dict[int | None, Memory] = {}
        self._cached = cached
        self._read_state: Memory | None = None

    @property
    def state_tokens(self) -> int:
        return self._request.state

    def memory_of(self, step: Step) -> Memory | None:
        """What the step resumes from."""
        return self._memories.get(step.owner, self._memories.get(None, self._cached)) if step.past else None

    def lines(self, step: Step, engine: Engine) -> StepLines:
        past = self.memory_of(step)
        if step.stop:
            memory = self._memory_for(step, engine)
            tokens = self._tokens(step.owner)[step.past : step.stop]
            line = Line(tokens, past, step.past, is_answered=False, keep=memory, keep_tokens=len(tokens))
            return StepLines((line,), ())
        if step.owner is not None:
            tokens = self._tokens(step.owner)[step.past :]
            keep = self._state_room(step, engine)
            keep_tokens = self._request.state - step.past if keep else 0
            line = Line(tokens, past, step.past, keep=keep, keep_tokens=keep_tokens)
            return StepLines((line,), (tuple(index for index, _ in step.prompts),))
        return self._tree(step, past)

    def done(self, step: Step) -> Memory | None:
        """To be told of each step that went well. Returns the state's memory once it is whole, if it is wanted."""
        if not self._keeps_state:
            return None
        reached = step.stop or (self._request.prompt_tokens(step.owner) if step.owner is not None else 0)
        memory = self._read_state or self._memories.get(step.owner)
        if memory is None or reached < self._request.state:
            return None
        self._keeps_state = False
        return memory.cut(self._request.state)

    def _tree(self, step: Step, past: Memory | None) -> StepLines:
        start = step.past * TOKEN_BYTES
        # Of this step's prompts alone: a request of a thousand has a hundred steps.
        rests = {index: (self._request.prefix + self._request.suffixes[index])[start:] for index, _ in step.prompts}
        nodes = build_tree(rests, step.prompts)
        lines = tuple(
            Line(
                np.frombuffer(rests[node.prompt], "<u4")[node.first : node.stop],
                past if node.parent is None else None,
                step.past if node.parent is None else 0,
                node.parent,
                is_answered=bool(node.answers),
            )
            for node in nodes
        )
        return StepLines(lines, tuple(node.answers for node in nodes if node.answers))

    def _tokens(self, owner: int | None) -> TokenIds:
        rest = b"" if owner is None else self._request.suffixes[owner]
        return np.frombuffer(self._request.prefix + rest, "<u4")

    def _memory_for(self, step: Step, engine: Engine) -> Memory:
        """The owner's own; at its first step it takes over what is read already."""
        if step.owner not in self._memories:
            request = self._request
            tokens = request.prefix_tokens if step.owner is None else request.prompt_tokens(step.owner)
            self._memories[step.owner] = _room(engine, tokens, self.memory_of(step), step.past)
        return self._memories[step.owner]

    def _state_room(self, step: Step, engine: Engine) -> Memory | None:
        """For a prompt that is answered in the same step in which its state is read to the end."""
        if not self._keeps_state or step.past >= self._request.state:
            return None
        if step.owner in self._memories:
            return self._memories[step.owner]
        if self._read_state is None:
            self._read_state = _room(engine, self._request.state, self.memory_of(step), step.past)
        return self._read_state


def _room(engine: Engine, tokens: int, before: Memory | None, before_tokens: int) -> Memory:
    memory = engine.memory(tokens)
    if before is not None:
        memory.write(0, before.first(before_tokens))
    return memory


def attach(steps: Sequence[StepLines]) -> list[Line]:
    """The lines of several steps as those of one call: parents counted from the call's first."""
    lines: list[Line] = []
    for step in steps:
        offset = len(lines)
        for line in step.lines:
            parent = None if line.parent is None else line.parent + offset
            lines.append(line if parent is None else Line(line.tokens, parent=parent, is_answered=line.is_answered))
    return lines
