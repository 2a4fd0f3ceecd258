"""One batch on its way through the engine: prompts in, P(yes) or an error for each request out."""

from collections.abc import Sequence

import numpy as np
import structlog

from ostraka_shared.errors import EngineFailed
from ostraka_shared.messages import Work
from ostraka_worker.engine import Engine, Prompt
from ostraka_worker.planner import plan_calls
from ostraka_worker.scoring import p_yes

log = structlog.get_logger()


class BatchRun:
    """`calls` are to be run in order, each by `run`; after the last, `answers` and `failures` are complete.

    Requests are named by their place in the batch: two attempts at one request may share it.
    """

    def __init__(self, works: Sequence[Work], batch_tokens: int) -> None:
        self._prompts = [prompt for work in works for prompt in split_prompts(work)]
        self._owners = [place for place, work in enumerate(works) for _ in work.suffixes]
        self._values = [0.0] * len(self._prompts)
        self._ids = [work.request_id for work in works]
        self.failures: dict[int, EngineFailed] = {}
        self.calls = plan_calls([prompt.tokens for prompt in self._prompts], batch_tokens)

    def request_ids(self, call: Sequence[int]) -> tuple[str, ...]:
        return tuple(self._ids[place] for place in self._places(call))

    def tokens(self, call: Sequence[int]) -> int:
        return sum(self._prompts[index].tokens for index in call)

    def run(self, engine: Engine, call: Sequence[int]) -> None:
        """If the call fails, each of its requests runs alone, so that one bad input fails alone."""
        try:
            values = p_yes(engine.run([self._prompts[index] for index in call]))
        except Exception as bad:  # noqa: BLE001  whatever a runtime raises costs a request, never the worker
            self._run_alone(engine, call, bad)
            return
        for index, value in zip(call, values, strict=True):
            self._values[index] = value

    def answers(self) -> list[tuple[float, ...]]:
        """Of each request, P(yes) of its prompts in order."""
        grouped: list[list[float]] = [[] for _ in self._ids]
        for place, value in zip(self._owners, self._values, strict=True):
            grouped[place].append(value)
        return [tuple(values) for values in grouped]

    def _run_alone(self, engine: Engine, call: Sequence[int], bad: Exception) -> None:
        places = self._places(call)
        log.warning("call_failed", requests=len(places), error=type(bad).__name__, detail=str(bad)[:200])
        if len(places) == 1:
            self.failures[places[0]] = EngineFailed(f"the model call failed ({type(bad).__name__})")
            return
        for place in places:
            self.run(engine, [index for index in call if self._owners[index] == place])

    def _places(self, call: Sequence[int]) -> list[int]:
        return list(dict.fromkeys(self._owners[index] for index in call))


def split_prompts(work: Work) -> list[Prompt]:
    """The message's own bytes, seen as tokens: nothing is copied until the engine packs its call."""
    prefix = np.frombuffer(work.prefix, "<u4")
    return [Prompt(prefix, np.frombuffer(suffix, "<u4")) for suffix in work.suffixes]
