"""What the server says of itself: health, probes, models. Reads counters; never loads, hashes or tokenizes."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from ostraka_gateway.decision import Gateway
from ostraka_gateway.roster import Worker


@dataclass(frozen=True, slots=True)
class Page:
    status: int
    body: bytes


def livez(_: Gateway) -> Page:
    """Answered at all, the event loop is alive."""
    return _page(200, {"status": "alive"})


def readyz(gateway: Gateway) -> Page:
    state = _state(gateway)
    ready = len(gateway.cluster.roster.ready_workers())
    return _page(200 if state == "ready" else 503, {"status": state, "ready_workers": ready})


def health(gateway: Gateway) -> Page:
    """The fields jev has, in its order, and then the cluster's."""
    roster = gateway.cluster.roster
    workers = sorted(roster, key=lambda worker: worker.hello.worker_id)
    return _page(
        200,
        {
            **_identity(
                gateway, {"precision": gateway.model.folder.spec.precision, "state_snapshots": _snapshots(gateway)}
            ),
            "queued_requests": gateway.cluster.dispatcher.queued_requests,
            "queued_tokens": gateway.cluster.dispatcher.queued_tokens,
            "in_flight_requests": gateway.cluster.dispatcher.in_flight_requests,
            "tokens_per_s": round(roster.tokens_per_s(), 1),
            "workers": [_describe(worker, roster.restarts[worker.hello.worker_id]) for worker in workers],
        },
    )


def jevos_health(gateway: Gateway) -> Page:
    """Only the fields jev has. There are no quantisation groups here: their number says so."""
    return _page(200, _identity(gateway, {"dynamic_quantization": 0, "state_snapshots": _snapshots(gateway)}))


def _snapshots(gateway: Gateway) -> dict[str, int]:
    """Of all workers together, as each said last."""
    beats = [worker.beat for worker in gateway.cluster.roster if worker.beat]
    return {name: sum(getattr(beat, f"snapshots_{name}") for beat in beats) for name in SNAPSHOT_FIELDS}


def _identity(gateway: Gateway, engine: dict[str, Any]) -> dict[str, Any]:
    workers, folder = list(gateway.cluster.roster), gateway.model.folder
    runtime, _, version = next((w.engine for w in workers if w.engine), "").partition(" ")
    return {
        "status": _state(gateway),
        "model": gateway.model.name,
        "model_files": folder.hashes,
        "fingerprint": folder.fingerprint,
        "engine": {
            "runtime": runtime,
            "version": version,
            "device": "cpu",
            "model_dir": str(folder.path),
            **engine,
            "batched_requests": sum(w.beat.batched_requests for w in workers if w.beat),
        },
    }


def models(gateway: Gateway) -> Page:
    """Two lists of the same models in one body: TypeSafe's `models` and OpenAI's `data`, for the SDKs of either."""
    typesafe = _typesafe_models(gateway)
    created = int(datetime.fromisoformat(gateway.started).replace(tzinfo=UTC).timestamp())
    openai = [
        {"id": n, "object": "model", "created": created, "owned_by": "ostraka"} for n in (m["name"] for m in typesafe)
    ]
    return _page(200, {"models": typesafe, "object": "list", "data": openai})


def jevos_models(gateway: Gateway) -> Page:
    return _page(200, {"models": _typesafe_models(gateway)})


def _typesafe_models(gateway: Gateway) -> list[dict[str, str]]:
    served = f"{gateway.model.name}, answered on CPUs in {gateway.model.folder.spec.precision}"
    alias = f"Another name for {gateway.model.name}, for clients that ask for the newest model"
    listed = [(gateway.model.name, served), ("jev-latest", alias)]
    return [{"name": n, "description": d, "release_date": gateway.started} for n, d in listed]


def _state(gateway: Gateway) -> str:
    if gateway.is_draining:
        return "draining"
    return "ready" if gateway.cluster.roster.ready_workers() else "starting"


def _describe(worker: Worker, restarts: int) -> dict[str, Any]:
    beat = worker.beat
    return {
        "worker": worker.hello.worker_id,
        "state": worker.state.value,
        "pid": worker.hello.pid,
        "cores": worker.hello.cores,
        "restarts": restarts,
        "in_flight_requests": len(worker.held),
        "in_flight_tokens": worker.outstanding_tokens,
        "running_tokens": worker.running_tokens,
        "tokens_per_s": round(worker.tokens_per_s, 1),
        "call_cost": dict(zip(("call_ms", "token_us", "token2_ns"), _terms(worker), strict=True)),
        "batches_done": beat.batches_done if beat else 0,
        "rss_bytes": beat.rss_bytes if beat else 0,
    }


def _terms(worker: Worker) -> list[float]:
    return [round(term * unit, 3) for term, unit in zip(worker.cost.terms_s, (1e3, 1e6, 1e9), strict=True)]


def _page(status: int, content: Any) -> Page:
    return Page(status, json.dumps(content, ensure_ascii=False, separators=(",", ":")).encode())


SNAPSHOT_FIELDS = ("kept", "max", "tokens", "max_tokens", "hits", "misses", "reused_tokens", "bytes")

PAGES: dict[str, Callable[[Gateway], Page]] = {
    "/v1/models": models,
    "/health": health,
    "/livez": livez,
    "/readyz": readyz,
}
JEVOS_PAGES = PAGES | {"/v1/models": jevos_models, "/health": jevos_health}
