"""When a rollout goes on and when it is given up: what happened comes in, what is to be done comes out. Pure.

    STARTING ──ready──► SHADOWING ──compared──► SHIFTING ──all──► SWITCHING ──accepting──► DRAINING ──old gone──► DONE
        │                   │                      │                  │
        └───────────────────┴── given up ──────────┴──────────────────┴──► ABORTING ──new gone──► ABORTED

"Old" is the generation that serves, "new" the one beside it. Up to SWITCHING the old one can answer everything by
itself, so that giving up costs nobody anything; from DRAINING on there is no way back, and none is needed.
docs/rollout.md has the table of what may happen when.
"""

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from ostraka_gateway.shadow import Figures
from ostraka_shared.options import check_at_least, option

QUIET = ("abort", "go")
SHARES = (0.1, 0.3, 1.0)
"""Of the requests, step by step: what only shows under load is to show on a tenth of it."""
SWITCH_S = 10.0
"""A gateway that does not begin to accept within this stands still."""


@dataclass(frozen=True)
class RolloutPlan:
    requests: int = option(100, "live requests to be answered by both models before any is shifted; 0: none")
    share: float = option(0.1, "share of the live requests that both models answer meanwhile, at most 1")
    shadow_s: float = option(60.0, "how long to wait for that many, in seconds")
    when_quiet: str = option("abort", "what to do when there were fewer", choices=QUIET)
    max_difference: float = option(0.1, "largest mean difference of the probabilities")
    max_flips: float = option(0.05, "largest share of answers that decide otherwise")
    shift_s: float = option(6.0, "how long the requests take to move to the new model, in seconds")
    ready_s: float = option(300.0, "how long the new model may take to be ready, in seconds")

    def __post_init__(self) -> None:
        check_at_least(0, self, "requests", "share", "shadow_s", "max_difference", "max_flips", "shift_s", "ready_s")
        if self.share > 1:
            raise ValueError(f"--share must be at most 1, not {self.share}")
        if self.when_quiet not in QUIET:
            raise ValueError(f"--when-quiet must be one of {', '.join(QUIET)}, not {self.when_quiet!r}")


class Phase(StrEnum):
    STARTING = "starting"
    SHADOWING = "shadowing"
    SHIFTING = "shifting"
    SWITCHING = "switching"
    DRAINING = "draining"
    ABORTING = "aborting"
    DONE = "done"
    ABORTED = "aborted"


REVOCABLE = frozenset({Phase.STARTING, Phase.SHADOWING, Phase.SHIFTING, Phase.SWITCHING})
OVER = frozenset({Phase.DONE, Phase.ABORTED})


@dataclass(frozen=True, slots=True)
class NewReady:
    """Gateways and all workers."""


@dataclass(frozen=True, slots=True)
class NewDied:
    child: str
    code: str


@dataclass(frozen=True, slots=True)
class OldGatewayDied:
    """It is started again, and knows nothing of a rollout."""

    code: str


@dataclass(frozen=True, slots=True)
class Measured:
    figures: Figures


@dataclass(frozen=True, slots=True)
class Accepting:
    """All new gateways take connections."""


@dataclass(frozen=True, slots=True)
class OldGone:
    pass


@dataclass(frozen=True, slots=True)
class NewGone:
    pass


@dataclass(frozen=True, slots=True)
class Cancelled:
    """By whoever asked for it, the server's stop, or an order that could not be carried out."""

    reason: str


@dataclass(frozen=True, slots=True)
class Tick:
    pass


Event = NewReady | NewDied | OldGatewayDied | Measured | Accepting | OldGone | NewGone | Cancelled | Tick


@dataclass(frozen=True, slots=True)
class Mirror:
    """The old gateways have the new model answer that share of what they have answered."""

    share: float


@dataclass(frozen=True, slots=True)
class PassOn:
    """The old gateways give that share of their requests to the new ones."""

    share: float


@dataclass(frozen=True, slots=True)
class Alone:
    """The old gateways answer by themselves."""


@dataclass(frozen=True, slots=True)
class Accept:
    """The new gateways take connections."""


@dataclass(frozen=True, slots=True)
class DrainOld:
    pass


@dataclass(frozen=True, slots=True)
class EndNew:
    """`has_clients`: some may be connected to it, and to nobody else."""

    has_clients: bool = False


@dataclass(frozen=True, slots=True)
class Say:
    """To whoever asked for the rollout, and the log."""

    phase: Phase
    fields: dict[str, Any] = field(default_factory=dict)


Instruction = Mirror | PassOn | Alone | Accept | DrainOld | EndNew | Say


class Rollout:
    """`now` is any monotonic clock's, in seconds."""

    def __init__(self, plan: RolloutPlan, now: float) -> None:
        self._plan = plan
        self.phase = Phase.STARTING
        self.reason: str | None = None
        self._since = now
        self._step = 0
        self.figures = Figures()

    @property
    def is_revocable(self) -> bool:
        return self.phase in REVOCABLE

    def begin(self) -> list[Instruction]:
        return [Say(self.phase)]

    def handle(self, event: Event, now: float) -> list[Instruction]:
        if self.phase in OVER:
            return []
        if isinstance(event, Measured):
            return self._measured(event.figures, now)
        if isinstance(event, Tick):
            return self._tick(now)
        if self.is_revocable and (reason := _why_not(event)):
            return self._abort(reason)
        return self._advance(event, now)

    def _advance(self, event: Event, now: float) -> list[Instruction]:
        match event, self.phase:
            case NewReady(), Phase.STARTING if self._plan.requests:
                return [*self._enter(Phase.SHADOWING, now), Mirror(self._plan.share)]
            case NewReady(), Phase.STARTING:
                return self._shift(0, now)
            case Accepting(), Phase.SWITCHING:
                return [*self._enter(Phase.DRAINING, now), DrainOld()]
            case OldGone(), Phase.DRAINING:
                return self._enter(Phase.DONE, now)
            case NewGone(), Phase.ABORTING:
                return self._enter(Phase.ABORTED, now, reason=self.reason)
        return []

    def _measured(self, figures: Figures, now: float) -> list[Instruction]:
        self.figures = figures
        if not self.is_revocable:
            return []
        if reason := _failure(figures):
            return self._abort(reason)
        if self.phase is Phase.SHADOWING and figures.requests >= self._plan.requests:
            return self._judge(now)
        return []

    def _judge(self, now: float) -> list[Instruction]:
        if reason := _objection(self.figures, self._plan):
            return self._abort(reason)
        return self._shift(0, now)

    def _shift(self, step: int, now: float) -> list[Instruction]:
        if step == len(SHARES):
            return [*self._enter(Phase.SWITCHING, now), Accept()]
        self._step = step
        return [*self._enter(Phase.SHIFTING, now, share=SHARES[step]), PassOn(SHARES[step])]

    def _tick(self, now: float) -> list[Instruction]:
        spent_s = now - self._since
        match self.phase:
            case Phase.STARTING if spent_s >= self._plan.ready_s:
                return self._abort(f"the new model was not ready within {self._plan.ready_s:g} s")
            case Phase.SHADOWING if spent_s >= self._plan.shadow_s:
                return self._quiet(now)
            case Phase.SHIFTING if spent_s >= self._plan.shift_s / len(SHARES):
                return self._shift(self._step + 1, now)
            case Phase.SWITCHING if spent_s >= SWITCH_S:
                return self._abort(f"the new gateway did not begin to accept within {SWITCH_S:g} s")
        return []

    def _quiet(self, now: float) -> list[Instruction]:
        said = f"{self.figures.requests} of {self._plan.requests} requests were compared in {self._plan.shadow_s:g} s"
        if self._plan.when_quiet == "abort":
            return self._abort(f"too little traffic: {said}; see --share, --when-quiet go, --requests 0")
        return [Say(self.phase, {"too_quiet": said}), *self._judge(now)]

    def _abort(self, reason: str) -> list[Instruction]:
        self.reason, begun = reason, self.phase
        was = [] if begun is Phase.STARTING else [Alone()]
        return [*self._enter(Phase.ABORTING, self._since, reason=reason), *was, EndNew(begun is Phase.SWITCHING)]

    def _enter(self, phase: Phase, now: float, **fields: Any) -> list[Instruction]:
        self.phase, self._since = phase, now
        figures = {} if self.figures == Figures() else {"figures": self.figures.summary()}
        return [Say(phase, fields | figures)]


def _failure(figures: Figures) -> str | None:
    if figures.errors:
        return f"the new model failed {figures.errors} requests that the old one answered"
    if figures.taken_back:
        return f"the new model failed {figures.taken_back} requests, which the old one answered then"
    return None


def _objection(figures: Figures, plan: RolloutPlan) -> str | None:
    """What the comparison says against the new model."""
    if figures.mean_difference > plan.max_difference:
        mean = f"{figures.mean_difference:.4f}"
        return f"the probabilities differ by {mean} on average, more than {plan.max_difference:g}"
    if figures.flip_share > plan.max_flips:
        flips = f"{figures.flips} of {figures.answers} answers"
        return f"{flips} decide otherwise, more than a share of {plan.max_flips:g}"
    return None


def _why_not(event: Event) -> str | None:
    """The reason to give up that an event is, as long as that is possible."""
    match event:
        case NewDied():
            return f"{event.child} of the new generation died ({event.code}): the log says why"
        case OldGatewayDied():
            return f"the gateway that serves died ({event.code}), and what was compared with it"
        case Cancelled():
            return event.reason
    return None
