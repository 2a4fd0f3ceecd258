"""Requests to the edge as a test makes them: by client, and byte by byte."""

import contextlib
import socket
from collections.abc import Iterator
from typing import Any

import httpx

from tests.cluster import Cluster

NOUL = {"type": "noul", "instructions": "Is it so?"}
REQUEST = {"model": "jev-latest", "state": "x", "questions": {"q": NOUL}}
ALIASES = ["/v1/systemone", "/systemone", "/api/v1/systemone", "/api/alpha/decisions"]
HEAD = b"POST /v1/systemone HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n"


def post(cluster: Cluster, body: bytes, path: str = "/v1/systemone", **headers: str) -> httpx.Response:
    return cluster.client.post(path, content=body, headers={n.replace("_", "-"): v for n, v in headers.items()})


def detail(response: httpx.Response) -> Any:
    assert response.headers["content-type"] == "application/json"
    assert response.headers["x-typesafe-request-id"]
    return response.json()["detail"]


@contextlib.contextmanager
def connected(cluster: Cluster, sent: bytes = b"") -> Iterator[socket.socket]:
    host, _, port = cluster.url.removeprefix("http://").rpartition(":")
    with socket.create_connection((host, int(port)), timeout=20) as client:
        client.sendall(sent)
        yield client
