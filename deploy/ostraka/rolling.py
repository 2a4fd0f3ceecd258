"""Carries a rollout out, in the supervisor: what `rollout` decides becomes processes, orders and words to who asked."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import structlog

from ostraka import rollout
from ostraka.children import Child
from ostraka.departure import Departures
from ostraka.front_desk import BUSY, FrontDesk
from ostraka.generation import Generation
from ostraka.rollout import OVER, Instruction, Phase, Rollout, RolloutPlan
from ostraka_gateway.shadow import Figures
from ostraka_shared.errors import OstrakaError
from ostraka_shared.model_folder import ModelFolder, open_folder

log = structlog.get_logger()

ABORT_GRACE_S = 5.0
"""What a new generation that accepts no clients holds when it is given up, the old one answers again."""
SAY_FIGURES_S = 1.0
TURN_S = 0.1

Prepare = Callable[[ModelFolder, int], Generation]
"""Of a model folder and the generation's number, with the settings as they are now. Raises OstrakaError or OSError."""


class Rolling:
    """`serving` is the generation that serves: the supervisor's, which looks after it."""

    def __init__(self, desk: FrontDesk, serving: Generation, prepare: Prepare, grace_s: float) -> None:
        self.serving = serving
        self._desk = desk
        self._prepare = prepare
        self._grace_s = grace_s
        self._rollout: Rollout | None = None
        self._new: Generation | None = None
        self._departures = Departures()
        self._last_number = serving.number
        self._said = 0.0
        self._measured = Figures()

    @property
    def is_under_way(self) -> bool:
        return self._rollout is not None

    @property
    def others(self) -> list[Generation]:
        """Beside the one that serves."""
        leaving = self._departures.generations
        return leaving if self._new is None or self._new in leaving else [self._new, *leaving]

    @property
    def sockets(self) -> list[Any]:
        doors = [door for generation in (self.serving, *self.others) for door in generation.doors]
        return [*self._desk.sockets, *(door.control for door in doors if door.control)]

    def turn(self, *, may_begin: bool) -> None:
        """To be called whenever something may have happened, and every TURN_S while a rollout is under way; after the
        gateways' reports were taken."""
        if (wish := self._desk.take()) is not None:
            if self._rollout:  # whoever asked for that one has left
                self._desk.refuse(BUSY)
            else:
                self._begin(wish, may_begin=may_begin)
        now = time.monotonic()
        if self._rollout:
            self._observe(self._rollout, now)
        for generation in self._departures.turn(now):
            self._on_gone(generation, now)

    def exited(self, child: Child, code: str) -> bool:
        """Whether the child is no matter of the supervisor's: it belongs to another generation than the serving one."""
        if self._departures.exited(child, code):
            return True
        if self._new and child in self._new.children:
            log.warning("child_exited", child=child.name, code=code, generation=self._new.number)
            self._tell(rollout.NewDied(child.name, code))
            return True
        if child in self.serving.gateways:
            self._tell(rollout.OldGatewayDied(code))
        return False

    def cancel(self, reason: str) -> None:
        self._tell(rollout.Cancelled(reason))

    def close(self) -> None:
        """Once no process is left."""
        if self._rollout:
            self._desk.say({"phase": Phase.ABORTED.value, "reason": self._rollout.reason or "the server has stopped"})
        for generation in (self.serving, *self.others):
            generation.remove_run_dir()

    def _begin(self, wish: dict[str, Any], *, may_begin: bool) -> None:
        try:
            plan, model = _read_wish(wish, may_begin=may_begin)
            self._new = self._prepare(open_folder(model or self._served()), self._last_number + 1)
        except (OstrakaError, OSError, ValueError, TypeError) as bad:
            self._desk.refuse(str(bad))
            return
        self._last_number, now = self._new.number, time.monotonic()
        log.info("rollout", generation=self._new.number, model=str(model or self._served()))
        self._rollout, self._measured, self._said = Rollout(plan, now), Figures(), now
        self._act(self._rollout.begin())
        for child in self._new.children:
            try:
                child.start()
            except OSError as bad:
                self._tell(rollout.NewDied(child.name, str(bad)))
                return

    def _served(self) -> Path:
        return self.serving.model.path if self.serving.model else Path()

    def _observe(self, running: Rollout, now: float) -> None:
        new = self._new
        if not self._desk.has_visitor and running.is_revocable:
            self.cancel("whoever asked for the rollout has gone")
        if new and running.phase is Phase.STARTING and new.is_ready:
            self._tell(rollout.NewReady())
        if new and running.phase is Phase.SWITCHING and new.is_accepting:
            self._tell(rollout.Accepting())
        if running.is_revocable and (figures := self.serving.figures()) != self._measured:
            self._measured = figures
            self._tell(rollout.Measured(figures))
        self._tell(rollout.Tick())
        if running.phase is Phase.SHADOWING and now - self._said >= SAY_FIGURES_S:
            self._said = now
            self._desk.say({"phase": running.phase, "figures": self._measured.summary()})

    def _tell(self, event: rollout.Event) -> None:
        if self._rollout:
            self._act(self._rollout.handle(event, time.monotonic()))

    def _act(self, instructions: list[Instruction]) -> None:
        successors = self._new.private_sockets if self._new else ()
        for each in instructions:
            match each:
                case rollout.Say():
                    self._say(each)
                case rollout.Mirror():
                    self.serving.assist(successors, mirrored=each.share)
                case rollout.PassOn():
                    self.serving.assist(successors, passed_on=each.share)
                case rollout.Alone():
                    self.serving.assist(())
                case rollout.Accept():
                    if self._new and (deaf := self._new.accept()):
                        self._tell(rollout.Cancelled(f"{deaf} of the new generation takes no orders"))
                case rollout.DrainOld():
                    self._switch()
                case rollout.EndNew() if self._new:
                    grace_s = self._grace_s if each.has_clients else ABORT_GRACE_S
                    self._departures.begin(self._new, time.monotonic() + grace_s)

    def _say(self, said: rollout.Say) -> None:
        say = log.warning if said.phase in (Phase.ABORTING, Phase.ABORTED) else log.info
        say("rollout_phase", phase=said.phase.value, **said.fields)
        self._desk.say({"phase": said.phase.value, **said.fields})

    def _switch(self) -> None:
        """From here on the new generation is the supervisor's to keep up."""
        if self._new:
            old, self.serving, self._new = self.serving, self._new, None
            self.serving.is_serving = True
            self._departures.begin(old, time.monotonic() + self._grace_s)

    def _on_gone(self, generation: Generation, now: float) -> None:
        if self._rollout is None:
            return
        event = rollout.NewGone() if generation is self._new else rollout.OldGone()
        self._act(self._rollout.handle(event, now))
        if self._rollout.phase in OVER:
            self._new = self._rollout = None
            self._desk.close_visit()


def _read_wish(wish: dict[str, Any], *, may_begin: bool) -> tuple[RolloutPlan, Path | None]:
    """Raises ValueError or TypeError."""
    if not may_begin:
        raise ValueError("the server is just starting or stopping")
    if wish.keys() != {"model", "plan"}:
        raise ValueError("this wish is not understood: is the command of another version than the server?")
    return RolloutPlan(**wish["plan"]), Path(wish["model"]) if wish["model"] else None
