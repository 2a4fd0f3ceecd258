"""One worker as the gateway sees it, from its HELLO until it leaves: what it holds, how fast it is, which states it
keeps. Pure.

    hello ──► STARTING ──ready──► READY ◄──heard──┐
                  │                │ └──silent──► SUSPECT      no new work
                  │              drain              │
                  │                ▼                │
                  │             DRAINING            │          finishes what it holds
                  └───────┬────────┴────────────────┘
                  bye, exit, a newer incarnation, silent for too long: out of the roster
"""

from dataclasses import dataclass, field
from enum import StrEnum

from ostraka_gateway.cost import CostModel
from ostraka_gateway.credit import Credit
from ostraka_shared.core_times import CoreTimes
from ostraka_shared.messages import Beat, Hello

PATIENCE = 2.0
ATTENTION_TOKENS = 1500
KEPT_STATES = (16, 8192)
"""Until a worker's beat says how many states, and tokens of states, it keeps."""


class WorkerState(StrEnum):
    STARTING = "starting"
    READY = "ready"
    SUSPECT = "suspect"
    DRAINING = "draining"


@dataclass(frozen=True, slots=True)
class State:
    """A state's tokens, by what tells them from all others, and how many they are."""

    key: bytes
    tokens: int


@dataclass(slots=True, eq=False)
class Worker:
    """`held` maps each request sent to this worker and not yet answered by it to its tokens: what is outstanding is
    counted when it is sent, never taken from reports. `started` are the requests of the running call. `others_tokens`
    are those it says it holds for other gateways. Its speed is what it measured itself before it was ready, and what
    its calls take since, smoothed. `starved_s`: of its silence, how long it wanted a core and had none, as far as it
    was `looked` at: when, and what its times were."""

    identity: bytes
    hello: Hello
    last_heard: float
    starved_s: float = 0.0
    looked: tuple[float, CoreTimes] | None = None
    state: WorkerState = WorkerState.STARTING
    credit: Credit = field(default_factory=Credit)
    batch_tokens: int = 0
    engine: str = ""
    held: dict[str, int] = field(default_factory=dict)
    outstanding_tokens: int = 0
    started: tuple[str, ...] = ()
    running_tokens: int = 0
    warm_tokens_per_s: float = 0.0
    cost: CostModel = field(default_factory=CostModel)
    last_turn: int = 0
    last_call: float = 0.0
    beat: Beat | None = None
    others_tokens: int = 0
    _kept: dict[State, None] = field(default_factory=dict)
    _kept_tokens: int = 0

    @property
    def patience_s(self) -> float:
        """By its slower speed: a machine may be busier now than it was at warm-up."""
        speeds = [speed for speed in (self.warm_tokens_per_s, self.tokens_per_s) if speed]
        fitted_s = self.cost.call_s(self.running_tokens) if self.running_tokens and self.cost.calls else 0.0
        return max(PATIENCE * fitted_s, patience_s(self.running_tokens, min(speeds, default=0.0)))

    @property
    def tokens_per_s(self) -> float:
        """As its calls were measured, in batches; 0 before the first."""
        return self.speed if self.cost.calls else 0.0

    @property
    def speed(self) -> float:
        """The same, but before the first call as it measured itself."""
        return self.cost.speed(max(1, self.batch_tokens))

    @property
    def predicted_s(self) -> float:
        """Until all it holds is answered, for other gateways too."""
        return (self.outstanding_tokens + self.others_tokens) / (self.speed or 1.0)

    @property
    def free_share(self) -> float:
        """Of its time, what other gateways leave to this one, as it said last."""
        return self.beat.free_share if self.beat else 1.0

    def keeps(self, state: State | None) -> bool:
        """As far as one knows from here: it was sent the state, and not too many others since."""
        return state in self._kept

    def tokens_to_read(self, tokens: int, state: State | None) -> int:
        return tokens - state.tokens if state and self.keeps(state) else tokens

    def keep(self, state: State) -> None:
        """It is sent the state. Its own cache drops the least recently used in the same way, and takes none that alone
        would be too large."""
        most, most_tokens = (self.beat.snapshots_max, self.beat.snapshots_max_tokens) if self.beat else KEPT_STATES
        if state in self._kept:
            del self._kept[state]
            self._kept_tokens -= state.tokens
        if state.tokens <= most_tokens:
            self._kept[state] = None
            self._kept_tokens += state.tokens
        while self._kept and (len(self._kept) > most or self._kept_tokens > most_tokens):
            oldest = next(iter(self._kept))
            del self._kept[oldest]
            self._kept_tokens -= oldest.tokens

    def hold(self, request_id: str, tokens: int, turn: int, *, is_alone: bool = False) -> None:
        self.held[request_id] = tokens
        self.outstanding_tokens += tokens
        self.credit.claim(request_id, tokens, is_alone=is_alone)
        self.last_turn = turn

    def release(self, request_id: str) -> None:
        self.outstanding_tokens -= self.held.pop(request_id, 0)
        self.credit.give_back(request_id)


def patience_s(tokens: int, tokens_per_s: float) -> float:
    """The longest a call of so many tokens should take: twice what its linear layers need at the worker's own speed,
    and attention, which is quadratic and costs as much as they do at about 1,500 tokens (fp32: 67 ms a layer and 1,024
    tokens against 97 ms)."""
    return PATIENCE * tokens / tokens_per_s * (1 + tokens / ATTENTION_TOKENS) if tokens and tokens_per_s else 0.0
