"""Requests that hang in a worker, and which one."""

from tests.cluster import Cluster, wait_for


def stall_one(cluster: Cluster, **headers: str):
    """A request that hangs in a worker; the worker's row of /health."""
    asked = cluster.ask_in_background("<stall>", **headers)
    worker = wait_for(
        lambda: next((w for w in cluster.health()["workers"] if w["running_tokens"]), None), "a worker runs it"
    )
    return asked, worker
