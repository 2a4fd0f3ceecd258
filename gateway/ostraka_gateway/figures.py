"""What one gateway says of itself and of the workers as it sees them, and what all gateways say together. Pure.

Each worker is at every gateway. So what a gateway has asked of it is added up, and what it says of itself, or what was
measured of it, is taken once.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from pydantic import TypeAdapter, ValidationError

from ostraka_gateway.roster import Roster
from ostraka_gateway.worker import Worker, WorkerState

LEAST_TRUSTED_FIRST = (WorkerState.DRAINING, WorkerState.SUSPECT, WorkerState.STARTING, WorkerState.READY)
SNAPSHOT_FIELDS = ("kept", "max", "tokens", "max_tokens", "hits", "misses", "reused_tokens", "bytes")


@dataclass(frozen=True, slots=True)
class WorkerFigures:
    """`terms_s` as in `cost.CostModel`. Without a beat yet, `has_beat` is false and what beats tell is 0."""

    worker: str
    incarnation: int
    state: WorkerState
    pid: int
    cores: tuple[int, ...]
    engine: str
    in_flight_requests: int
    in_flight_tokens: int
    running_tokens: int
    tokens_per_s: float
    terms_s: tuple[float, float, float]
    has_beat: bool
    queued_tokens: int
    batches_done: int
    batched_requests: int
    dropped_frames: int
    rss_bytes: int
    snapshots: dict[str, int]


@dataclass(frozen=True, slots=True)
class GatewayFigures:
    """`restarts` of each worker, as seen from here, also of those that are gone. `wanted_workers`: how many there
    should be; None where nobody has said it."""

    gateway: str
    pid: int
    state: str
    ready_workers: int
    queued_requests: int
    queued_tokens: int
    in_flight_requests: int
    restarts: dict[str, int]
    workers: tuple[WorkerFigures, ...]
    wanted_workers: int | None = None
    degraded: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ClusterFigures:
    """`silent`: the names of gateways that did not answer, whose clients and requests are missing here."""

    gateways: tuple[GatewayFigures, ...]
    silent: tuple[str, ...]
    state: str
    queued_requests: int
    queued_tokens: int
    in_flight_requests: int
    tokens_per_s: float
    restarts: dict[str, int]
    workers: tuple[WorkerFigures, ...]
    wanted_workers: int | None
    degraded: tuple[str, ...]


_FORM = TypeAdapter(GatewayFigures)


def encode(figures: GatewayFigures) -> bytes:
    return _FORM.dump_json(figures)


def decode(text: bytes) -> GatewayFigures | None:
    """None for what was cut short, or is of another version."""
    try:
        return _FORM.validate_json(text)
    except ValidationError:
        return None


def describe_workers(roster: Roster) -> tuple[WorkerFigures, ...]:
    return tuple(sorted(map(_describe, roster), key=lambda worker: worker.worker))


def _describe(worker: Worker) -> WorkerFigures:
    beat = worker.beat
    return WorkerFigures(
        worker=worker.hello.worker_id,
        incarnation=worker.hello.incarnation,
        state=worker.state,
        pid=worker.hello.pid,
        cores=worker.hello.cores,
        engine=worker.engine,
        in_flight_requests=len(worker.held),
        in_flight_tokens=worker.outstanding_tokens,
        running_tokens=worker.running_tokens,
        tokens_per_s=worker.tokens_per_s,
        terms_s=worker.cost.terms_s,
        has_beat=beat is not None,
        queued_tokens=beat.queued_tokens if beat else 0,
        batches_done=beat.batches_done if beat else 0,
        batched_requests=beat.batched_requests if beat else 0,
        dropped_frames=beat.dropped_frames if beat else 0,
        rss_bytes=beat.rss_bytes if beat else 0,
        snapshots={name: getattr(beat, f"snapshots_{name}") if beat else 0 for name in SNAPSHOT_FIELDS},
    )


def merge(gateways: Sequence[GatewayFigures], silent: Iterable[str] = ()) -> ClusterFigures:
    """Of at least one gateway. What the first says of a worker itself comes before what the others say."""
    views: dict[str, list[WorkerFigures]] = {}
    for gateway in gateways:
        for worker in gateway.workers:
            views.setdefault(worker.worker, []).append(worker)
    workers = tuple(_merge_worker(views[name]) for name in sorted(views))
    names = {name for gateway in gateways for name in gateway.restarts}
    return ClusterFigures(
        gateways=tuple(sorted(gateways, key=lambda gateway: gateway.gateway)),
        silent=tuple(silent),
        state=next((s for s in ("ready", "starting") if any(g.state == s for g in gateways)), "draining"),
        queued_requests=sum(gateway.queued_requests for gateway in gateways),
        queued_tokens=sum(gateway.queued_tokens for gateway in gateways),
        in_flight_requests=sum(gateway.in_flight_requests for gateway in gateways),
        tokens_per_s=sum(worker.tokens_per_s for worker in workers if worker.state is WorkerState.READY),
        # A gateway counts those since its own start: the one that has been there longest has seen most.
        restarts={name: max(gateway.restarts.get(name, 0) for gateway in gateways) for name in sorted(names)},
        workers=workers,
        # The same from each that was told: whoever is asked says the same.
        wanted_workers=max((g.wanted_workers for g in gateways if g.wanted_workers is not None), default=None),
        degraded=tuple(sorted({reason for gateway in gateways for reason in gateway.degraded})),
    )


def _merge_worker(views: Sequence[WorkerFigures]) -> WorkerFigures:
    """One that has just been replaced may still be another gateway's dead one."""
    newest = max(view.incarnation for view in views)
    views = [view for view in views if view.incarnation == newest]
    known = next((view for view in views if view.tokens_per_s), views[0])
    beats = next((view for view in views if view.has_beat), views[0])
    return replace(
        beats,
        state=min((view.state for view in views), key=LEAST_TRUSTED_FIRST.index),
        engine=next((view.engine for view in views if view.engine), ""),
        in_flight_requests=sum(view.in_flight_requests for view in views),
        in_flight_tokens=sum(view.in_flight_tokens for view in views),
        running_tokens=max(view.running_tokens for view in views),
        tokens_per_s=known.tokens_per_s,
        terms_s=known.terms_s,
    )
