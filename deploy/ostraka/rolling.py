"""Carries a rollout out, in the supervisor: what `rollout` decides becomes processes, orders and words to who asked."""

import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import structlog

from ostraka import rollout
from ostraka.children import Child
from ostraka.front_desk import BUSY, FrontDesk
from ostraka.generation import Generation
from ostraka.rollout import OVER, Instruction, Phase, Rollout, RolloutPlan
from ostraka.succession import Succession
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
    """Whoever comes to the desk may have another generation take over."""

    def __init__(self, desk: FrontDesk, succession: Succession, prepare: Prepare, grace_s: float) -> None:
        self._succession = succession
        self._desk = desk
        self._prepare = prepare
        self._grace_s = grace_s
        self._rollout: Rollout | None = None
        self._last_number = succession.serving.number
        self._said = 0.0
        self._measured = Figures()

    @property
    def is_under_way(self) -> bool:
        return self._rollout is not None

    @property
    def sockets(self) -> list[socket.socket]:
        """On which somebody may come."""
        return self._desk.sockets

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
        for generation in self._succession.turn(now):
            self._on_gone(generation, now)

    def exited(self, child: Child, code: str) -> bool:
        """Whether the child is no matter of the supervisor's: it belongs to another generation than the serving one."""
        running = self._succession
        if running.exited(child, code):
            return True
        if (new := running.successor) and child in new.children:
            log.warning("child_exited", child=child.name, code=code, generation=new.number)
            self._tell(rollout.NewDied(child.name, code))
            return True
        if child in running.serving.gateways:
            self._tell(rollout.OldGatewayDied(code))
        return False

    def cancel(self, reason: str) -> None:
        self._tell(rollout.Cancelled(reason))

    def close(self) -> None:
        """Once no process is left."""
        if self._rollout:
            self._desk.say({"phase": Phase.ABORTED.value, "reason": self._rollout.reason or "the server has stopped"})
        self._succession.remove_run_dirs()

    def _begin(self, wish: dict[str, Any], *, may_begin: bool) -> None:
        try:
            plan, model = _read_wish(wish, may_begin=may_begin)
            model = model or _model_of(self._succession.serving)
            new = self._prepare(open_folder(model), self._last_number + 1)
        except (OstrakaError, OSError, ValueError, TypeError) as bad:
            self._desk.refuse(str(bad))
            return
        self._succession.successor = new
        self._last_number, now = new.number, time.monotonic()
        log.info("rollout", generation=new.number, model=str(model))
        self._rollout, self._measured, self._said = Rollout(plan, now), Figures(), now
        self._act(self._rollout.begin())
        for child in new.children:
            try:
                child.start()
            except OSError as bad:
                self._tell(rollout.NewDied(child.name, str(bad)))
                return

    def _observe(self, running: Rollout, now: float) -> None:
        new = self._succession.successor
        if not self._desk.has_visitor and running.is_revocable:
            self.cancel("whoever asked for the rollout has gone")
        if new and running.phase is Phase.STARTING and new.is_ready:
            self._tell(rollout.NewReady())
        if new and running.phase is Phase.SWITCHING and new.is_accepting:
            self._tell(rollout.Accepting())
        if running.is_revocable and (figures := self._succession.serving.figures()) != self._measured:
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
        running = self._succession
        new, serving = running.successor, running.serving
        successors = new.private_sockets if new else ()
        for each in instructions:
            match each:
                case rollout.Say():
                    _log(each)
                    self._desk.say({"phase": each.phase.value, **each.fields})
                case rollout.Mirror():
                    serving.assist(successors, mirrored=each.share)
                case rollout.PassOn():
                    serving.assist(successors, passed_on=each.share)
                case rollout.Alone():
                    serving.assist(())
                case rollout.Accept():
                    if new and (deaf := new.accept()):
                        self._tell(rollout.Cancelled(f"{deaf} of the new generation takes no orders"))
                case rollout.DrainOld():
                    running.switch(time.monotonic() + self._grace_s)
                case rollout.EndNew():
                    running.give_up(time.monotonic() + (self._grace_s if each.has_clients else ABORT_GRACE_S))

    def _on_gone(self, generation: Generation, now: float) -> None:
        if self._rollout is None:
            return
        event = rollout.NewGone() if generation is self._succession.successor else rollout.OldGone()
        self._act(self._rollout.handle(event, now))
        if self._rollout.phase in OVER:
            self._succession.successor = self._rollout = None
            self._desk.close_visit()


def _read_wish(wish: dict[str, Any], *, may_begin: bool) -> tuple[RolloutPlan, Path | None]:
    """Raises ValueError or TypeError."""
    if not may_begin:
        raise ValueError("the server is just starting or stopping")
    if wish.keys() != {"model", "plan"}:
        raise ValueError("this wish is not understood: is the command of another version than the server?")
    return RolloutPlan(**wish["plan"]), Path(wish["model"]) if wish["model"] else None


def _model_of(generation: Generation) -> Path:
    return generation.model.path if generation.model else Path()


def _log(said: rollout.Say) -> None:
    say = log.warning if said.phase in (Phase.ABORTING, Phase.ABORTED) else log.info
    say("rollout_phase", phase=said.phase.value, **said.fields)
