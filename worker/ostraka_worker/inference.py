"""One batch on its way through the engine: requests in, P(yes) or an error for each request out."""

import itertools
import math
from collections.abc import Sequence

import structlog

from ostraka_shared.errors import EngineFailed, OstrakaError
from ostraka_shared.messages import TOKEN_BYTES, Work
from ostraka_shared.reading_rules import LONG_PAST_TOKENS
from ostraka_worker.engine import Engine
from ostraka_worker.planner import Request, Step, plan_calls, plan_request, plan_resumed
from ostraka_worker.reading import Reading, attach
from ostraka_worker.scoring import p_yes
from ostraka_worker.snapshots import Snapshots

log = structlog.get_logger()

OUT_OF_MEMORY = ("bad_alloc", "bad allocation", "Failed to allocate memory")

Call = list[tuple[int, Step]]
"""Steps of one round, each with its request's place in the batch."""


class BatchRun:
    """`calls` are to be run in order, each by `run`; after the last, `answers` and `failures` are complete.

    Requests are named by their place in the batch: two attempts at one request may share it.
    """

    def __init__(self, works: Sequence[Work], batch_tokens: int, snapshots: Snapshots | None = None) -> None:
        self._snapshots = snapshots or Snapshots(0, 0)
        self._works = works
        self._answers = [[0.0] * len(work.suffixes) for work in works]
        self._readings: list[Reading] = []
        self._memories: list[int] = []
        self.failures: dict[int, OstrakaError] = {}
        rounds = itertools.zip_longest(*(self._begin(work, batch_tokens) for work in works))
        self.calls: list[Call] = []
        for steps in rounds:
            placed = [(place, step) for place, mine in enumerate(steps) for step in mine or ()]
            self.calls += self._plan_round(placed, batch_tokens)

    def tokens(self, call: Call) -> int:
        """What the call costs, in tokens of a call without a past."""
        past = max(step.past for _, step in call)
        return math.ceil(sum(step.tokens for _, step in call) * math.sqrt(max(1.0, past / LONG_PAST_TOKENS)))

    def wanted(self, call: Call) -> Call:
        """What is left of it: nothing more is read of a request once it has failed, or is made to."""
        return [(place, step) for place, step in call if place not in self.failures]

    def run(self, engine: Engine, call: Call) -> None:
        """If the call fails, each of its requests runs alone, so that one bad input fails alone."""
        call = self.wanted(call)
        if not call:
            return
        try:
            self._run(engine, call)
        except Exception as bad:
            if _is_out_of_memory(bad):
                raise  # not the request's fault: others have memory, and its successor will
            # Whatever else a runtime raises costs a request, never the worker
            failed = places(call)
            log.warning("call_failed", requests=len(failed), error=type(bad).__name__, detail=str(bad)[:200])
            if len(failed) == 1:
                self.failures[failed[0]] = EngineFailed(f"the model call failed ({type(bad).__name__})")
                return
            for place in failed:
                self.run(engine, [each for each in call if each[0] == place])

    def answers(self) -> list[tuple[float, ...]]:
        """Of each request, P(yes) of its prompts in order."""
        return [tuple(values) for values in self._answers]

    def _begin(self, work: Work, batch_tokens: int) -> list[list[Step]]:
        cached, tokens = self._snapshots.find(work.prefix)
        request = Request(work.prefix, work.suffixes, min(work.state_tokens, len(work.prefix) // TOKEN_BYTES), tokens)
        self._readings.append(Reading(request, cached, keeps_state=self._snapshots.wants(request.state)))
        # Requests that resume one memory share it; others are told apart by their place.
        self._memories.append(id(cached) if cached else len(self._memories))
        return plan_request(request, batch_tokens)

    def _plan_round(self, steps: Call, batch_tokens: int) -> list[Call]:
        fresh = [each for each in steps if not each[1].past]
        resumed = [each for each in steps if each[1].past]
        groups = [(fresh, plan_calls([step.tokens for _, step in fresh], batch_tokens))]
        named = [(step, self._memories[place]) for place, step in resumed]
        groups.append((resumed, plan_resumed(named, batch_tokens)))
        return [[some[index] for index in group] for some, calls in groups for group in calls]

    def _run(self, engine: Engine, call: Call) -> None:
        read = [self._readings[place].lines(step, engine) for place, step in call]
        values = iter(p_yes(engine.run(attach(read))))
        for (place, _), step_lines in zip(call, read, strict=True):
            for prompts in step_lines.answers:
                value = next(values)
                for index in prompts:
                    self._answers[place][index] = value
        for place, step in call:
            reading = self._readings[place]
            if state := reading.done(step):
                self._snapshots.keep(self._works[place].prefix[: reading.state_tokens * TOKEN_BYTES], state)


def _is_out_of_memory(bad: Exception) -> bool:
    """ONNX Runtime raises its own types, and says so in words alone."""
    return isinstance(bad, MemoryError) or any(words in str(bad) for words in OUT_OF_MEMORY)


def places(call: Call) -> list[int]:
    return list(dict.fromkeys(place for place, _ in call))
