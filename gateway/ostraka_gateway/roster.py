"""The workers as the gateway sees them, and when one is no longer to be trusted.

    hello ──► STARTING ──ready──► READY ◄──heard──┐
                  │                │ └──silent──► SUSPECT      no new work
                  │              drain              │
                  │                ▼                │
                  │             DRAINING            │          finishes what it holds
                  └───────┬────────┴────────────────┘
                  bye, exit, a newer incarnation, silent for too long: out of the roster

Pure: time comes in as `now`, in seconds of any monotonic clock. A worker is silent only if its inference loop is: each
message it sends comes from there. A call's size says how long silence may last.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum

from ostraka_gateway.cost import CostModel
from ostraka_gateway.pace import Pace
from ostraka_shared.messages import Beat, Hello, Ready, Refused, Started

LOAD_S = 300.0
"""How long a worker may take from HELLO to READY: a large model from a cold disk."""
SUSPECT_BEATS = 2.0
LOST_CALLS = 1.5
LOST_BEATS = 3.0
"""A worker that stands still in a call of the longest step (256 tokens, fp32) is lost after 3.7 s: early enough for
another to answer before the default deadline. Patience is twice what the call should take, so this is three times."""
FRESH_S = 30.0
"""How long a measured speed is a reason to refuse a request."""
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
    counted when it is sent, never taken from reports. `claimed_tokens` is what that takes of its credit. `started` are
    the requests of the running call. `others_tokens` are those it says it holds for other gateways. Its speed is what
    it measured itself before it was ready, and what its calls take since, smoothed."""

    identity: bytes
    hello: Hello
    last_heard: float
    state: WorkerState = WorkerState.STARTING
    credit_tokens: int = 0
    batch_tokens: int = 0
    engine: str = ""
    held: dict[str, int] = field(default_factory=dict)
    outstanding_tokens: int = 0
    claimed_tokens: int = 0
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
    _claims: dict[str, int] = field(default_factory=dict)
    _long: set[str] = field(default_factory=set)

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

    @property
    def holds_long(self) -> bool:
        return bool(self._long)

    def keeps(self, state: State | None) -> bool:
        """As far as one knows from here: it was sent the state, and not too many others since."""
        return state in self._kept

    def tokens_to_read(self, tokens: int, state: State | None) -> int:
        return tokens - state.tokens if state and self.keeps(state) else tokens

    def keep(self, state: State) -> None:
        """It is sent the state. Its own cache drops the least recently used in the same way."""
        most, most_tokens = (self.beat.snapshots_max, self.beat.snapshots_max_tokens) if self.beat else KEPT_STATES
        if state in self._kept:
            del self._kept[state]
        else:
            self._kept_tokens += state.tokens
        self._kept[state] = None
        while self._kept and (len(self._kept) > most or self._kept_tokens > most_tokens):
            oldest = next(iter(self._kept))
            del self._kept[oldest]
            self._kept_tokens -= oldest.tokens

    def hold(self, request_id: str, tokens: int, turn: int, *, is_alone: bool = False) -> None:
        """One that is to run alone takes all the credit; a long one half, so that shorter ones fit beside it."""
        self.held[request_id] = tokens
        self.outstanding_tokens += tokens
        claim = self.credit_tokens if is_alone else self._claim(tokens)
        self._claims[request_id] = claim = min(claim, self.credit_tokens - self.claimed_tokens)
        self.claimed_tokens += claim
        if tokens > self.credit_tokens:
            self._long.add(request_id)
        self.last_turn = turn

    def release(self, request_id: str) -> None:
        self.outstanding_tokens -= self.held.pop(request_id, 0)
        self.claimed_tokens -= self._claims.pop(request_id, 0)
        self._long.discard(request_id)

    def _claim(self, tokens: int) -> int:
        return tokens if tokens <= self.credit_tokens else self.credit_tokens // 2


class Roster:
    """`heartbeat_s` is what workers are told to keep."""

    def __init__(self, cluster_id: str, fingerprint: str, heartbeat_s: float, now: float) -> None:
        self._cluster_id = cluster_id
        self.fingerprint = fingerprint
        self._heartbeat_s = heartbeat_s
        self._workers: dict[bytes, Worker] = {}
        self._last_incarnation: dict[str, int] = {}
        self.restarts: dict[str, int] = {}
        # A gateway that starts may be another's successor, whose workers are about to find it.
        self.last_departure = now
        self.pace = Pace()

    def __iter__(self) -> Iterator[Worker]:
        return iter(self._workers.values())

    def __len__(self) -> int:
        return len(self._workers)

    def find(self, identity: bytes) -> Worker | None:
        return self._workers.get(identity)

    def refusal(self, hello: Hello) -> Refused | None:
        """Why this worker must not join: said to it, for its log."""
        if hello.cluster_id != self._cluster_id:
            return Refused("wrong_cluster", f"this gateway serves cluster {self._cluster_id!r}")
        if hello.fingerprint != self.fingerprint:
            return Refused("wrong_model", f"this gateway serves the model with fingerprint {self.fingerprint}")
        if hello.incarnation < self._last_incarnation.get(hello.worker_id, 0):
            return Refused("stale_incarnation", f"a newer {hello.worker_id} has been here")
        return None

    def earlier_ones(self, identity: bytes, hello: Hello) -> list[Worker]:
        """Those a HELLO shows to be gone: the same worker before its restart, or before it lost its memory of us."""
        return [w for w in self if w.hello.worker_id == hello.worker_id or w.identity == identity]

    def relieves(self, hello: Hello, earlier: Worker) -> bool:
        """Whether the newcomer may have been started beside `earlier`, to take its place once it is ready. That this
        still runs is for others to see: a worker that has died is followed in the same way."""
        was = earlier.hello
        return (hello.worker_id, hello.host) == (was.worker_id, was.host) and hello.incarnation > was.incarnation

    def relieved_by(self, worker: Worker) -> list[Worker]:
        """Once it is ready: those that need not stay."""
        return [w for w in self if w is not worker and self.relieves(worker.hello, w)]

    def join(self, identity: bytes, hello: Hello, now: float) -> Worker:
        """After `refusal` found nothing and `earlier_ones` were removed."""
        before = self._last_incarnation.get(hello.worker_id)
        self.restarts.setdefault(hello.worker_id, 0)
        if before is not None and hello.incarnation > before:
            self.restarts[hello.worker_id] += 1
        self._last_incarnation[hello.worker_id] = hello.incarnation
        worker = self._workers[identity] = Worker(identity, hello, now)
        return worker

    def remove(self, worker: Worker, now: float) -> None:
        del self._workers[worker.identity]
        self.last_departure = now

    def heard(self, worker: Worker, now: float) -> None:
        worker.last_heard = now
        if worker.state is WorkerState.SUSPECT:
            worker.state = WorkerState.READY

    def ready(self, worker: Worker, ready: Ready) -> None:
        worker.engine, worker.credit_tokens = ready.engine, ready.credit_tokens
        worker.batch_tokens = ready.credit_tokens // 2
        worker.warm_tokens_per_s = ready.tokens_per_s
        worker.cost.start(ready.tokens_per_s)
        if worker.state is WorkerState.STARTING:
            worker.state = WorkerState.READY

    def started(self, worker: Worker, started: Started) -> None:
        worker.started, worker.running_tokens = started.request_ids, started.tokens
        worker.others_tokens = started.others_tokens

    def beat(self, worker: Worker, beat: Beat) -> None:
        worker.beat = beat
        worker.credit_tokens = beat.credit_tokens or worker.credit_tokens

    def call_ended(self, worker: Worker, now: float) -> None:
        """To be told of whatever a worker sends after STARTED, before `heard`: the time between is the call's."""
        worker.last_call = now
        self.pace.count(worker.running_tokens)
        worker.cost.observe(worker.running_tokens, now - worker.last_heard)
        worker.started, worker.running_tokens = (), 0

    def drain(self, worker: Worker) -> None:
        worker.state = WorkerState.DRAINING

    def forgive(self, pause_s: float) -> None:
        """To be told when this process itself stood still: its workers were not silent, it was deaf."""
        for worker in self:
            worker.last_heard += pause_s

    def judge(self, now: float) -> tuple[list[Worker], list[Worker]]:
        """Makes silent workers suspect. Those it did so to, and those silent for too long: lost."""
        suspect, lost = [], []
        for worker in self:
            silent_s = now - worker.last_heard
            if silent_s > self._lost_after_s(worker):
                lost.append(worker)
            elif silent_s > self._suspect_after_s(worker) and worker.state is WorkerState.READY:
                worker.state = WorkerState.SUSPECT
                suspect.append(worker)
        return suspect, lost

    def ready_workers(self) -> list[Worker]:
        return [worker for worker in self if worker.state is WorkerState.READY]

    def tokens_per_s(self) -> float:
        """What the ready workers answer together, as measured; 0 before the first answer."""
        return sum(worker.tokens_per_s for worker in self.ready_workers())

    def measured_speeds(self, now: float) -> tuple[float, float]:
        """Of all ready workers at their pace, and of the fastest one's calls, in tokens a second, as far as other
        gateways leave it to this one; 0 where no call tells what they are now."""
        ready = [worker for worker in self.ready_workers() if worker.cost.calls]
        if not any(now - worker.last_call < FRESH_S for worker in ready):
            return 0.0, 0.0
        speeds = [worker.tokens_per_s * worker.free_share for worker in ready]
        return self.pace.share * sum(speeds), max(speeds)

    def full_call_s(self) -> float:
        """What a call over a full batch takes the slowest of the ready workers; 0 where nobody knows."""
        ready = self.ready_workers()
        return max((worker.cost.call_s(worker.batch_tokens) for worker in ready if worker.cost.calls), default=0.0)

    def expects_worker(self, now: float, patience_s: float) -> bool:
        """A worker is here, on its way, or left so recently that its replacement may be."""
        return any(w.state is not WorkerState.DRAINING for w in self) or now - self.last_departure < patience_s

    def _suspect_after_s(self, worker: Worker) -> float:
        return SUSPECT_BEATS * self._heartbeat_s + worker.patience_s

    def _lost_after_s(self, worker: Worker) -> float:
        if worker.state is WorkerState.STARTING:
            return LOAD_S
        return LOST_BEATS * self._heartbeat_s + LOST_CALLS * worker.patience_s


def patience_s(tokens: int, tokens_per_s: float) -> float:
    """The longest a call of so many tokens should take: twice what its linear layers need at the worker's own speed,
    and attention, which is quadratic and costs as much as they do at about 1,500 tokens (fp32: 67 ms a layer and 1,024
    tokens against 97 ms)."""
    return PATIENCE * tokens / tokens_per_s * (1 + tokens / ATTENTION_TOKENS) if tokens and tokens_per_s else 0.0
