"""Requests that hang in a worker, and which one."""

import contextlib
import json
from collections.abc import Iterator

from ostraka_gateway.plain_protocol import HALF_CLOSE_S
from tests.cluster import Cluster, wait_for
from tests.integration.edge_requests import HEAD, connected
from tests.waiting import let_pass


@contextlib.contextmanager
def asking(cluster: Cluster, body: dict[str, object], deadline_ms: int = 9000) -> Iterator[None]:
    """A client that has sent a request, and leaves with the block, without an answer."""
    sent = json.dumps(body).encode()
    with connected(cluster, HEAD % len(sent) + b"x-deadline-ms: %d\r\n\r\n" % deadline_ms + sent):
        yield
        let_pass(HALF_CLOSE_S)  # sooner, it would be taken to have closed its own side only, and to wait for its answer


def stall_one(cluster: Cluster, **headers: str):
    """A request that hangs in a worker; the worker's row of /health."""
    asked = cluster.ask_in_background("<stall>", **headers)
    worker = wait_for(
        lambda: next((w for w in cluster.health()["workers"] if w["running_tokens"]), None), "a worker runs it"
    )
    return asked, worker
