"""The loop of a tuning: learn, look at what is held out, keep the best, stop when it is over."""

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count, islice
from pathlib import Path
from random import Random
from typing import Any

from ostraka.evaluation.examples import Example
from ostraka.tuning.batches import Batch, collate, epoch
from ostraka.tuning.encoding import Encoded
from ostraka.tuning.held_out import HeldOut
from ostraka.tuning.kept_state import Place, keep
from ostraka.tuning.learning import Learner
from ostraka.tuning.losses import mean_loss
from ostraka.tuning.schedule import EarlyStopping, Limits, rate_factor
from ostraka_worker.build.decoder import Tensor

STEPS_A_LINE = 10
STEPS_A_SAVING = 100
BEST = "best."
EASE = 0.95
"""Of the loss that is shown and logged, how much is what it was."""


@dataclass(frozen=True, slots=True)
class Plan:
    """`steps_between`: from one look at the held-out examples to the next. `place_file`, `log_file`: written to."""

    examples: Sequence[Example]
    encode: Callable[[Example, Random], Encoded]
    limits: Limits
    seed: int
    steps_between: int
    place_file: Path
    log_file: Path


class Watcher:
    """Told how it goes; a person sees it."""

    def stepped(self, share: float, loss: float) -> None: ...

    def looked(self, line: Mapping[str, Any]) -> None: ...


class Tuning:
    def __init__(self, plan: Plan, learner: Learner, held_out: HeldOut, place: Place, watcher: Watcher) -> None:
        self._plan = plan
        self._learner = learner
        self._held_out = held_out
        self._place = place
        self._watcher = watcher
        self._stopping = EarlyStopping()
        self._best: dict[str, Tensor] = {}
        self._loss = 0.0

    def resume(self, tensors: Mapping[str, Tensor]) -> None:
        self._learner.restore(tensors, self._place.step)
        self._best = {name.removeprefix(BEST): value for name, value in tensors.items() if name.startswith(BEST)}
        if self._place.best_loss is not None:
            self._stopping = EarlyStopping(self._place.best_loss, self._place.looks_since)

    def run(self, is_stopped: Callable[[], bool]) -> bool:
        """Leaves the network with the best parameters. False where it was stopped: it can be gone on with."""
        began, before_s = time.monotonic(), self._place.elapsed_s
        with self._plan.log_file.open("a", encoding="utf-8") as log:
            if not self._place.step:
                self._look(log)
            for batch in self._batches():
                self._place.elapsed_s = before_s + time.monotonic() - began
                share = self._share
                if share >= 1 or self._stopping.is_over:
                    break
                self._step(batch, share, log)
                if is_stopped():
                    self._keep()
                    return False
            if self._place.step % self._plan.steps_between:
                self._look(log)
        self._learner.put(self._best)
        return True

    @property
    def _share(self) -> float:
        return self._plan.limits.share(self._place.examples, self._place.elapsed_s)

    def _batches(self) -> Iterator[Batch]:
        """From where we are, without end."""
        for number in count(self._place.epoch):
            batches = epoch(self._plan.examples, self._plan.encode, self._plan.seed, number)
            for encoded in islice(batches, self._place.batch, None):
                self._place.batch += 1
                yield collate(encoded)
            self._place.epoch, self._place.batch = number + 1, 0

    def _step(self, batch: Batch, share: float, log: Any) -> None:
        place = self._place
        factor = rate_factor(place.step, share)
        loss, norm = self._learner.step(batch, factor)
        self._loss = EASE * self._loss + (1 - EASE) * loss if self._loss else loss
        place.step += 1
        place.examples += batch.examples
        place.tokens += batch.token_ids.size
        self._watcher.stepped(self._share, self._loss)
        if place.step % STEPS_A_LINE == 0:
            self._write(log, {"loss": round(self._loss, 4), "gradient_norm": round(norm, 3), "rate_factor": factor})
        if place.step % self._plan.steps_between == 0:
            self._look(log)
        elif place.step % STEPS_A_SAVING == 0:
            self._keep()

    def _look(self, log: Any) -> None:
        margins = self._held_out.margins(self._learner.network)
        if not self._place.step:
            self._place.before = margins.tolist()
        loss = mean_loss(margins, self._held_out.asked)
        is_best = self._stopping.look(loss) or not self._best
        if is_best:
            self._best = self._learner.parameters()
        line = {"held_out_loss": round(loss, 5), "is_best": is_best}
        self._write(log, line)
        self._watcher.looked(line | {"examples": self._place.examples})
        if self._place.step:
            self._keep()

    def _keep(self) -> None:
        place = self._place
        place.best_loss, place.looks_since = self._stopping.best, self._stopping.looks_since
        best = {BEST + name: value for name, value in self._best.items()}
        keep(self._plan.place_file, self._learner.state() | best, place)

    def _write(self, log: Any, line: Mapping[str, Any]) -> None:
        place = self._place
        where = {"step": place.step, "epoch": place.epoch, "examples": place.examples, "tokens": place.tokens}
        log.write(json.dumps(where | {"elapsed_s": round(place.elapsed_s, 1)} | dict(line)) + "\n")
        log.flush()
