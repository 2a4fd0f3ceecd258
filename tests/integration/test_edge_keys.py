"""API keys at the edge of real servers: who is let in, how often, and what never shows."""

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest
from typesafe_sdk import TypeSafeAuthenticationError, TypeSafeClient

from tests.cluster import STOP_S, Asked, Cluster, running, wait_for
from tests.integration.edge_requests import ALIASES, HEAD, REQUEST, connected, detail
from tests.waiting import DEADLINE_S

SECRETS = ["s3cret-ci", "s3cret-bare", "s3cret-jev", "s3cret-file", "s3cret-slow", "s3cret-tokens"]


@pytest.fixture(scope="module")
def keys_file(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("keys") / "keys"
    path.write_text("# ours\nbatch:s3cret-file\nslow:s3cret-slow\ntokens:s3cret-tokens\n")
    path.chmod(0o600)
    return path


@pytest.fixture(scope="module")
def guarded(model, keys_file) -> Iterator[Cluster]:
    env = {"JEV_API_KEY": "s3cret-jev", "OSTRAKA_API_KEYS": "ci:s3cret-ci,s3cret-bare"}
    flags = ["--workers=1", f"--api-keys-file={keys_file}", "--rate-requests-per-min=30", "--rate-tokens-per-s=500"]
    with running(model, *flags, env=env) as cluster:
        cluster.client.headers["authorization"] = "Bearer s3cret-jev"
        yield cluster


def bearer(key: str) -> dict[str, str]:
    return {"authorization": f"Bearer {key}"}


@pytest.mark.parametrize("header", [{}, bearer("wrong"), {"authorization": "Basic eDp5"}], ids=["no", "wrong", "basic"])
@pytest.mark.parametrize(
    ("method", "path"),
    [
        *[("POST", path) for path in (*ALIASES, "/v1/decisions")],
        *[("GET", path) for path in ("/v1/models", "/metrics", "/openapi.json", "/nowhere", "/health/")],
    ],
)
def test_every_path_but_the_probes_wants_a_key(guarded: Cluster, method, path, header) -> None:
    response = httpx.request(method, guarded.url + path, headers=header)
    assert (response.status_code, response.headers["www-authenticate"]) == (401, "Bearer")
    assert detail(response)["error_type"] == "authentication_error"


@pytest.mark.parametrize("path", ["/health", "/livez", "/readyz"])
def test_probes_want_none(guarded: Cluster, path) -> None:
    assert httpx.get(guarded.url + path).status_code == 200


def test_the_official_sdk_knows_what_a_wrong_key_is(guarded: Cluster) -> None:
    with (
        TypeSafeClient(api_key="wrong", base_url=guarded.url) as client,
        pytest.raises(TypeSafeAuthenticationError, match="wants an API key"),
    ):
        client.models.list()
    with TypeSafeClient(api_key="s3cret-ci", base_url=guarded.url) as client:
        assert client.models.list().models


def test_a_large_body_is_understood_beside_the_others(guarded: Cluster) -> None:
    """In a thread, where it is answered and refused as a small one; all of them are under way at once."""

    def ask(request: dict[str, Any], padding: int) -> Asked:
        body = json.dumps(request).encode() + b" " * padding
        return Asked(lambda: httpx.post(f"{guarded.url}/v1/systemone", content=body, headers=bearer("s3cret-ci")))

    pairs = [[ask(request, padding) for padding in (400_000, 0)] for request in (REQUEST, {})]
    answers = [[asked.response() for asked in pair] for pair in pairs]
    assert [[answer.status_code for answer in pair] for pair in answers] == [[200, 200], [422, 422]]
    assert all(large.content == small.content for large, small in answers)


def test_a_wrong_key_is_told_before_the_body_is_read(guarded: Cluster) -> None:
    with connected(guarded, HEAD % 10**9 + b"\r\n") as client:
        assert client.recv(65536).startswith(b"HTTP/1.1 401")


@pytest.mark.parametrize(
    ("key", "name"), [("s3cret-jev", "key1"), ("s3cret-ci", "ci"), ("s3cret-bare", "key2"), ("s3cret-file", "batch")]
)
def test_a_key_is_counted_by_its_name(guarded: Cluster, key, name) -> None:
    before = guarded.metric("ostraka_key_requests_total", key=name, status="200")
    assert httpx.post(f"{guarded.url}/v1/systemone", json=REQUEST, headers=bearer(key)).status_code == 200
    after = guarded.metric("ostraka_key_requests_total", key=name, status="200")
    assert after - before == (2 if name == "key1" else 1)  # key1 also reads the metrics


def test_a_key_never_shows(guarded: Cluster) -> None:
    wrong = httpx.post(f"{guarded.url}/v1/systemone", json=REQUEST, headers=bearer("s3cret-wrong"))
    shown = [wrong.text, guarded.client.get("/metrics").text, guarded.client.get("/health").text, *guarded.lines]
    processes = psutil.Process(guarded.process.pid).children(recursive=True)
    shown += [" ".join(process.cmdline()) for process in processes]
    assert not [text for text in shown if "s3cret" in text]
    assert guarded.wait_event("serving", keys=["batch", "ci", "key1", "key2", "slow", "tokens"])


def test_workers_hold_no_keys(guarded: Cluster) -> None:
    worker = psutil.Process(guarded.health()["workers"][0]["pid"])
    assert not {"JEV_API_KEY", "OSTRAKA_API_KEYS"} & set(worker.environ())
    assert "PATH" in worker.environ()


def until_refused(ask: Callable[[], httpx.Response], let_in: int) -> list[httpx.Response]:
    """The answers until one has another status than who is let in gets; far more than any rate here allows, at most."""
    answers = [ask()]
    while answers[-1].status_code == let_in and len(answers) < 1000:
        answers.append(ask())
    return answers


def test_requests_beyond_the_rate_are_refused_until_the_time_they_are_told(guarded: Cluster) -> None:
    with httpx.Client(base_url=guarded.url, headers=bearer("s3cret-slow")) as client:
        begun = time.monotonic()
        *let_in, refused = until_refused(lambda: client.post("/v1/systemone", content=b"{}"), 422)  # counts too
        most = 30 + (time.monotonic() - begun) * 30 / 60
    assert 30 <= len(let_in) <= most
    assert (refused.status_code, detail(refused)["error_type"]) == (429, "rate_limit_error")
    assert 0 < int(refused.headers["retry-after-ms"]) <= 2000
    assert refused.headers["retry-after"] in ("1", "2")
    assert httpx.post(f"{guarded.url}/v1/systemone", json=REQUEST, headers=bearer("s3cret-ci")).status_code == 200


def test_tokens_beyond_the_rate_are_refused_until_the_time_they_are_told(guarded: Cluster) -> None:
    with httpx.Client(base_url=guarded.url, headers=bearer("s3cret-tokens")) as client:
        long = REQUEST | {"state": "x" * 1000}
        *_, refused = until_refused(lambda: client.post("/v1/systemone", json=long), 200)  # two within two seconds
        assert (refused.status_code, detail(refused)["error_type"]) == (429, "rate_limit_error")
        assert 0 < int(refused.headers["retry-after-ms"]) < 3000
        waited = float(refused.headers["retry-after-ms"]) / 1000
        wait_for(
            lambda: client.post("/v1/systemone", json=REQUEST).status_code == 200, "it is told", waited + DEADLINE_S
        )


def test_without_keys_a_header_is_ignored_and_the_rate_is_everyone_s(model) -> None:
    with running(model, "--workers=1", "--rate-requests-per-min=2") as cluster:
        statuses = [cluster.decide("x", authorization=f"Bearer {n}").status_code for n in range(3)]
        assert statuses == [200, 200, 429]
        assert cluster.client.get("/v1/models").status_code == 200
        assert cluster.wait_event("serving", keys=[])


def test_keys_others_can_read_stop_the_server_at_the_start(model, tmp_path: Path) -> None:
    path = tmp_path / "keys"
    path.write_text("s3cret")
    path.chmod(0o644)
    cluster = Cluster(model, f"--api-keys-file={path}")
    try:
        assert cluster.process.wait(STOP_S) == 1
    finally:
        cluster.close()
    assert "chmod o-rwx" in "".join(cluster.lines)
    assert "s3cret" not in "".join(cluster.lines)


def test_an_open_address_without_keys_is_warned_of(model) -> None:
    with running(model, "--workers=1", "--host=0.0.0.0") as cluster:
        assert cluster.wait_event("no_api_keys", host="0.0.0.0")  # noqa: S104
