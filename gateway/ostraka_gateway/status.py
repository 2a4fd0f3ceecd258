"""What the server says of itself: health, probes, models. Reads counters; never loads, hashes or tokenizes."""

import json
import os
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from ostraka_gateway.decision import Gateway
from ostraka_gateway.figures import SNAPSHOT_FIELDS, ClusterFigures, GatewayFigures, WorkerFigures, describe_workers


@dataclass(frozen=True, slots=True)
class Page:
    status: int
    body: bytes


async def livez(_: Gateway) -> Page:
    """Answered at all, the event loop is alive."""
    return _page(200, {"status": "alive"})


async def readyz(gateway: Gateway) -> Page:
    """For the port: who asks does not choose which gateway takes the next connection. One that is ready asks nobody."""
    own = figures(gateway)
    if own.state != "ready":
        cluster = await cluster_figures(gateway)
        own = next((each for each in cluster.gateways if each.state == cluster.state), own)
    return _page(200 if own.state == "ready" else 503, {"status": own.state, "ready_workers": own.ready_workers})


async def health(gateway: Gateway) -> Page:
    """The fields jev has, in its order, and then the cluster's."""
    cluster = await cluster_figures(gateway)
    snapshots = _snapshots(cluster)
    return _page(
        200,
        {
            **_identity(
                gateway, cluster, {"precision": gateway.model.folder.spec.precision, "state_snapshots": snapshots}
            ),
            "queued_requests": cluster.queued_requests,
            "queued_tokens": cluster.queued_tokens,
            "in_flight_requests": cluster.in_flight_requests,
            "tokens_per_s": round(cluster.tokens_per_s, 1),
            "gateways": [_describe_gateway(each) for each in cluster.gateways]
            + [{"gateway": name, "state": "silent"} for name in cluster.silent],
            "wanted_workers": cluster.wanted_workers,
            "degraded": cluster.degraded,
            "workers": [_describe(worker, cluster.restarts.get(worker.worker, 0)) for worker in cluster.workers],
        },
    )


async def jevos_health(gateway: Gateway) -> Page:
    """Only the fields jev has. There are no quantisation groups here: their number says so."""
    cluster = await cluster_figures(gateway)
    return _page(200, _identity(gateway, cluster, {"dynamic_quantization": 0, "state_snapshots": _snapshots(cluster)}))


def figures(gateway: Gateway) -> GatewayFigures:
    """Of this gateway."""
    cluster = gateway.cluster
    ready = len(cluster.roster.ready_workers())
    return GatewayFigures(
        gateway=gateway.name,
        pid=os.getpid(),
        state="draining" if gateway.is_draining else "ready" if ready else "starting",
        ready_workers=ready,
        queued_requests=cluster.dispatcher.line.count,
        queued_tokens=cluster.dispatcher.line.tokens,
        in_flight_requests=cluster.single_flight.in_flight_requests,
        restarts=dict(cluster.roster.restarts),
        workers=describe_workers(cluster.roster),
        wanted_workers=gateway.wanted_workers,
        degraded=gateway.degraded,
    )


async def cluster_figures(gateway: Gateway) -> ClusterFigures:
    """Of all gateways together."""
    return await gateway.siblings.ask(figures(gateway))


def _snapshots(cluster: ClusterFigures) -> dict[str, int]:
    """Of all workers together, as each said last."""
    return {name: sum(worker.snapshots[name] for worker in cluster.workers) for name in SNAPSHOT_FIELDS}


def _identity(gateway: Gateway, cluster: ClusterFigures, engine: dict[str, Any]) -> dict[str, Any]:
    folder = gateway.model.folder
    runtime, _, version = next((w.engine for w in cluster.workers if w.engine), "").partition(" ")
    return {
        "status": cluster.state,
        "model": gateway.model.name,
        "model_files": folder.hashes,
        "fingerprint": folder.fingerprint,
        "engine": {
            "runtime": runtime,
            "version": version,
            "device": "cpu",
            "model_dir": str(folder.path),
            **engine,
            "batched_requests": sum(worker.batched_requests for worker in cluster.workers),
        },
    }


async def models(gateway: Gateway) -> Page:
    """Two lists of the same models in one body: TypeSafe's `models` and OpenAI's `data`, for the SDKs of either."""
    typesafe = _typesafe_models(gateway)
    created = int(datetime.fromisoformat(gateway.started).replace(tzinfo=UTC).timestamp())
    openai = [
        {"id": n, "object": "model", "created": created, "owned_by": "ostraka"} for n in (m["name"] for m in typesafe)
    ]
    return _page(200, {"models": typesafe, "object": "list", "data": openai})


async def jevos_models(gateway: Gateway) -> Page:
    return _page(200, {"models": _typesafe_models(gateway)})


def _typesafe_models(gateway: Gateway) -> list[dict[str, str]]:
    served = f"{gateway.model.name}, answered on CPUs in {gateway.model.folder.spec.precision}"
    alias = f"Another name for {gateway.model.name}, for clients that ask for the newest model"
    listed = [(gateway.model.name, served), ("jev-latest", alias)]
    return [{"name": n, "description": d, "release_date": gateway.started} for n, d in listed]


def _describe_gateway(gateway: GatewayFigures) -> dict[str, Any]:
    return {
        "gateway": gateway.gateway,
        "state": gateway.state,
        "pid": gateway.pid,
        "ready_workers": gateway.ready_workers,
        "queued_requests": gateway.queued_requests,
        "in_flight_requests": gateway.in_flight_requests,
    }


def _describe(worker: WorkerFigures, restarts: int) -> dict[str, Any]:
    return {
        "worker": worker.worker,
        "state": worker.state.value,
        "pid": worker.pid,
        "cores": worker.cores,
        "restarts": restarts,
        "in_flight_requests": worker.in_flight_requests,
        "in_flight_tokens": worker.in_flight_tokens,
        "running_tokens": worker.running_tokens,
        "tokens_per_s": round(worker.tokens_per_s, 1),
        "call_cost": dict(zip(("call_ms", "token_us", "token2_ns"), _terms(worker), strict=True)),
        "batches_done": worker.batches_done,
        "rss_bytes": worker.rss_bytes,
    }


def _terms(worker: WorkerFigures) -> list[float]:
    return [round(term * unit, 3) for term, unit in zip(worker.terms_s, (1e3, 1e6, 1e9), strict=True)]


def _page(status: int, content: Any) -> Page:
    return Page(status, json.dumps(content, ensure_ascii=False, separators=(",", ":")).encode())


PAGES: dict[str, Callable[[Gateway], Awaitable[Page]]] = {
    "/v1/models": models,
    "/health": health,
    "/livez": livez,
    "/readyz": readyz,
}
JEVOS_PAGES = PAGES | {"/v1/models": jevos_models, "/health": jevos_health}
