"""The HTTP edge of real servers: what is refused, when, and in which words; every flag by its effect."""

import contextlib
import gzip
import json
import socket
import sys
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest
from typesafe_sdk import Noul, TypeSafeAuthenticationError, TypeSafeClient

from ostraka_gateway.http_server import HEAD_BYTES_MAX
from tests.cluster import Asked, Cluster, running, wait_for
from tests.fake_model import make_fake_model

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

READ_TIMEOUT_S = 1.0
BODY_BYTES = 100_000
FLAGS = [
    "--workers=1",
    f"--read-timeout-s={READ_TIMEOUT_S}",
    "--connections=12",
    f"--body-bytes={BODY_BYTES}",
    "--state-bytes=6000",
    "--text-chars=20",
    "--request-questions=4",
    "--choice-options=300",
    "--score-levels=3",
    "--request-prompts=310",
    "--request-chars=700000",
]
NOUL = {"type": "noul", "instructions": "Is it so?"}
REQUEST = {"model": "jev-latest", "state": "x", "questions": {"q": NOUL}}
ALIASES = ["/v1/systemone", "/systemone", "/api/v1/systemone", "/api/alpha/decisions"]
ENCODE = {"zstd": zstd.compress, "gzip": gzip.compress, "deflate": zlib.compress}


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> Path:
    return make_fake_model(tmp_path_factory.mktemp("edge") / "model").path


@pytest.fixture(scope="module")
def edge(model) -> Iterator[Cluster]:
    with running(model, *FLAGS) as cluster:
        yield cluster


def post(cluster: Cluster, body: bytes, path: str = "/v1/systemone", **headers: str) -> httpx.Response:
    return cluster.client.post(path, content=body, headers={n.replace("_", "-"): v for n, v in headers.items()})


def detail(response: httpx.Response) -> Any:
    assert response.headers["content-type"] == "application/json"
    assert response.headers["x-typesafe-request-id"]
    return response.json()["detail"]


@pytest.mark.parametrize("encoding", ENCODE)
def test_an_encoded_body_is_answered_as_a_plain_one(edge: Cluster, encoding) -> None:
    plain = json.dumps(REQUEST).encode()
    response = post(edge, ENCODE[encoding](plain), content_encoding=encoding)
    assert (response.status_code, response.content) == (200, post(edge, plain).content)


def test_the_official_sdk_sends_its_large_bodies_as_zstd(edge: Cluster) -> None:
    with TypeSafeClient(api_key="any", base_url=edge.url, compression="zstd") as client:
        answer = client.system_one(state="charged twice " * 400, questions={"q": Noul(instructions="Billing?")})
    assert 0 <= answer.answers["q"].noul <= 1


def test_a_bomb_costs_no_memory(edge: Cluster) -> None:
    gateway = next(
        child for child in psutil.Process(edge.process.pid).children() if "ostraka_gateway" in " ".join(child.cmdline())
    )
    before = gateway.memory_info().rss
    for encoding, encode in ENCODE.items():
        bomb = encode(bytes(80_000_000))
        assert len(bomb) < BODY_BYTES
        response = post(edge, bomb, content_encoding=encoding)
        assert (response.status_code, detail(response)["error_type"]) == (413, "body_too_large")
    assert gateway.memory_info().rss - before < 40_000_000


def test_an_encoding_that_is_not_read_is_told_with_those_that_are(edge: Cluster) -> None:
    response = post(edge, b"x", content_encoding="br")
    assert (response.status_code, detail(response)["error_type"]) == (415, "unsupported_media_type")
    assert response.headers["accept-encoding"] == "zstd, gzip, deflate, identity"


def test_a_damaged_body_is_the_client_s_fault(edge: Cluster) -> None:
    response = post(edge, gzip.compress(b"{}")[:-3], content_encoding="gzip")
    assert (response.status_code, detail(response)["error_type"]) == (400, "invalid_request_error")


def test_parts_are_refused(edge: Cluster) -> None:
    response = edge.client.post("/v1/systemone", files={"request": json.dumps(REQUEST)})
    assert (response.status_code, detail(response)["error_type"]) == (415, "unsupported_media_type")


@pytest.mark.parametrize(
    ("change", "kind"),
    [
        ({"state": "x" * 6001}, "state_too_long"),
        ({"questions": {"q": {**NOUL, "instructions": "x" * 21}}}, "string_too_long"),
        ({"questions": dict.fromkeys("abcde", NOUL)}, "too_long"),
        ({"questions": {"q": {"type": "choice", "criteria": dict.fromkeys(map(str, range(301)))}}}, "too_long"),
        ({"questions": {"q": {"type": "score", "criteria": ["l"] * 4}}}, "too_long"),
        (
            {"questions": {q: {"type": "choice", "criteria": dict.fromkeys(map(str, range(160)))} for q in "ab"}},
            "too_long",
        ),
        (
            {"questions": {"q": {"type": "choice", "criteria": dict.fromkeys(map(str, range(300)), "x" * 15)}}},
            "too_long",
        ),
    ],
    ids=["state", "text", "questions", "options", "levels", "prompts", "characters"],
)
def test_a_limit_that_was_set_is_kept(edge: Cluster, change, kind) -> None:
    response = edge.client.post("/v1/systemone", json=REQUEST | change)
    assert (response.status_code, [item["type"] for item in detail(response)]) == (422, [kind])


def test_a_limit_that_was_raised_is_not_in_the_way(edge: Cluster) -> None:
    many = {"questions": {"q": {"type": "choice", "criteria": dict.fromkeys(map(str, range(300)))}}}
    assert edge.client.post("/v1/systemone", json=REQUEST | many).status_code == 200


def test_the_body_s_limit_is_kept(edge: Cluster) -> None:
    assert edge.client.post("/v1/systemone", json={**REQUEST, "state": "x" * BODY_BYTES}).status_code == 413


@pytest.mark.parametrize("path", ALIASES)
def test_every_path_clients_use_answers(edge: Cluster, path) -> None:
    before = edge.metric("ostraka_requests_total", route=path, status="200")
    assert post(edge, json.dumps(REQUEST).encode(), path).json()["answers"]["q"]["type"] == "noul"
    assert edge.metric("ostraka_requests_total", route=path, status="200") == before + 1


def test_a_doubled_v1_is_told_what_to_change(edge: Cluster) -> None:
    response = post(edge, b"{}", "/v1/v1/systemone")
    assert (response.status_code, detail(response)["error_type"]) == (404, "not_found")
    assert "base URL" in detail(response)["message"]


def test_an_answer_is_compressed_where_that_is_asked_for_and_worth_it(edge: Cluster) -> None:
    large = json.dumps(
        REQUEST | {"questions": {"q": {"type": "choice", "criteria": dict.fromkeys(map(str, range(100)))}}}
    ).encode()
    plain = post(edge, large, accept_encoding="identity")
    assert "content-encoding" not in plain.headers
    for encoding in ("gzip", "zstd"):
        response = post(edge, large, accept_encoding=f"{encoding}, *;q=0")
        assert (response.headers["content-encoding"], response.headers["vary"]) == (encoding, "accept-encoding")
        assert int(response.headers["content-length"]) < len(plain.content)
        body = response.content if encoding == "gzip" else zstd.decompress(response.content)  # httpx leaves zstd alone
        assert body == plain.content
        assert "inference" in response.headers["server-timing"]
    small = post(edge, json.dumps(REQUEST).encode(), accept_encoding="gzip, zstd")
    assert "content-encoding" not in small.headers


@contextlib.contextmanager
def connected(cluster: Cluster, sent: bytes = b"") -> Iterator[socket.socket]:
    host, _, port = cluster.url.removeprefix("http://").rpartition(":")
    with socket.create_connection((host, int(port)), timeout=20) as client:
        client.sendall(sent)
        yield client


def read_to_end(client: socket.socket) -> tuple[int, dict[str, str], bytes]:
    """One answer, and then the connection's end."""
    received = b""
    while chunk := client.recv(65536):
        received += chunk
    if not received:
        return 0, {}, b""
    head, _, body = received.partition(b"\r\n\r\n")
    status, *lines = head.decode().split("\r\n")
    headers = dict(line.lower().split(": ", 1) for line in lines)
    assert headers["content-length"] == str(len(body))
    return int(status.split()[1]), headers, body


HEAD = b"POST /v1/systemone HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n"


@pytest.mark.parametrize(
    "sent",
    [
        HEAD % 100 + b"\r\n" + b'{"state"',
        HEAD % 100 + b"x-more: ",
        b"POST /v1/sys",
        HEAD % 100 + b"content-encoding: gzip\r\n\r\n" + gzip.compress(b"{}")[:9],
    ],
    ids=["body", "headers", "path", "encoded body"],
)
def test_a_request_that_does_not_arrive_is_ended(edge: Cluster, sent) -> None:
    with connected(edge, sent) as client:
        status, headers, body = read_to_end(client)
    assert (status, headers["connection"]) == (408, "close")
    assert json.loads(body)["detail"]["error_type"] == "request_timeout"


def test_a_trickle_does_not_win_time(edge: Cluster) -> None:
    """A byte whenever the last was taken: the clock runs from the request's begin."""
    with connected(edge, HEAD % 10**5 + b"\r\n") as client:
        client.settimeout(READ_TIMEOUT_S / 20)
        received = b""
        while not received:
            with contextlib.suppress(TimeoutError):
                received = client.recv(1)
            if not received:
                client.sendall(b" ")
    assert received == b"H"


@pytest.mark.parametrize("sent", [b"", b"\r\n", b"\r\n\r\n"], ids=["nothing", "a line", "lines"])
def test_a_silent_connection_is_closed_without_a_word(edge: Cluster, sent) -> None:
    with connected(edge, sent) as client:
        assert read_to_end(client) == (0, {}, b"")


def test_what_goes_on_arriving_after_its_answer_is_cut_off(edge: Cluster) -> None:
    with connected(edge, HEAD % 10**9 + b"\r\n" + b"x") as client:
        status, _, body = read_to_end(client)
    assert (status, json.loads(body)["detail"]["error_type"]) == (413, "body_too_large")


def test_a_connection_may_rest_between_requests(edge: Cluster) -> None:
    alive = b'{"status":"alive"}'
    with connected(edge, b"GET /livez HTTP/1.1\r\nhost: x\r\n\r\n") as client:
        received = b""
        while not received.endswith(alive):
            received += client.recv(65536)
        client.settimeout(2 * READ_TIMEOUT_S)
        with pytest.raises(TimeoutError):
            client.recv(1)
        client.settimeout(20)
        client.sendall(b"GET /livez HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
        assert read_to_end(client)[::2] == (200, alive)


def test_a_long_answer_is_no_slow_request(model, tmp_path: Path) -> None:
    release = tmp_path / "release"
    stalling = make_fake_model(tmp_path / "model", stall_until=str(release)).path
    with running(stalling, "--workers=1", "--read-timeout-s=0.2") as cluster:
        asked = cluster.ask_in_background("<stall>")
        wait_for(lambda: cluster.health()["workers"][0]["running_tokens"], "it stalls")
        with connected(cluster, b"GET /li") as client:  # as long as the read timeout, and longer
            assert read_to_end(client)[0] == 408
        release.touch()
        assert asked.response().status_code == 200


@pytest.mark.parametrize("path", ["/health", "/livez", "/readyz", "/v1/models", "/metrics", "/openapi.json"])
def test_a_monitor_may_ask_for_the_head_alone(edge: Cluster, path: str) -> None:
    head = edge.client.head(path)
    assert (head.status_code, head.content) == (200, b"")
    assert int(head.headers["content-length"]) > 0
    assert edge.client.head("/v1/systemone").status_code == 405


def test_health_says_how_many_workers_there_should_be(edge: Cluster) -> None:
    health = edge.health()
    assert (health["wanted_workers"], len(health["workers"])) == (1, 1)


def test_who_closes_his_sending_side_with_his_request_is_answered(edge: Cluster) -> None:
    body = json.dumps(REQUEST).encode()
    with connected(edge, HEAD % len(body) + b"\r\n" + body) as client:
        client.shutdown(socket.SHUT_WR)
        status, headers, answer = read_to_end(client)
    assert (status, headers["connection"]) == (200, "close")
    assert json.loads(answer)["answers"]["q"]["type"] == "noul"


def test_who_would_rather_speak_http_2_is_answered_in_http_1(edge: Cluster) -> None:
    body = json.dumps(REQUEST).encode()
    upgrade = b"connection: upgrade, http2-settings, close\r\nupgrade: h2c\r\nhttp2-settings: AAMAAABkAAQAAP__\r\n\r\n"
    with connected(edge, HEAD % len(body) + upgrade + body) as client:
        status, _, answer = read_to_end(client)
    assert (status, json.loads(answer)["answers"]["q"]["type"]) == (200, "noul")


@pytest.mark.parametrize("sent", [b"hello\r\n\r\n", b"\x16\x03\x01\x02\x00\x01\x00", b"GET / HTTP/9.9\r\n\r\n"])
def test_what_is_not_http_is_told_in_json(edge: Cluster, sent) -> None:
    with connected(edge, sent) as client:
        status, headers, body = read_to_end(client)
    assert (status, headers["content-type"]) == (400, "application/json")
    assert json.loads(body)["detail"]["error_type"] == "invalid_request_error"


@pytest.mark.parametrize(("last", "told"), [(b"", 200), (b"x-z: z\r\n", 431)], ids=["at the limit", "beyond it"])
def test_a_head_may_have_so_many_bytes(edge: Cluster, last, told) -> None:
    """The last piece is sent alone: nothing is on its way when the connection is closed, which would reset it."""
    most = [header(b"connection", b"close"), *[header(b"x-y", b"z" * 8000)] * 8]
    room = HEAD_BYTES_MAX - len(b"/livez") - len(b"".join(most))
    most.append(header(b"x-y", b"z" * (room - len(header(b"x-y", b"")))))
    with connected(edge, b"GET /livez HTTP/1.1\r\n" + b"".join(most)) as client:
        client.sendall(last + b"\r\n")
        status, headers, _ = read_to_end(client)
    assert (status, headers["connection"]) == (told, "close")


def header(name: bytes, value: bytes) -> bytes:
    return name + b": " + value + b"\r\n"


def test_one_connection_too_many_is_told_so_and_still_probed(edge: Cluster) -> None:
    lasting = httpx.Limits(keepalive_expiry=None)
    with contextlib.ExitStack() as stack:
        first = stack.enter_context(httpx.Client(base_url=edge.url, limits=lasting))
        assert first.post("/v1/systemone", json=REQUEST).status_code == 200
        for _ in range(12):
            resting = stack.enter_context(httpx.Client(base_url=edge.url, limits=lasting))
            assert resting.get("/livez").status_code == 200
        refused = httpx.post(f"{edge.url}/v1/systemone", json=REQUEST)
        assert (refused.status_code, detail(refused)["error_type"]) == (503, "overloaded_error")
        assert (refused.headers["connection"], refused.headers["retry-after"]) == ("close", "1")
        assert httpx.get(f"{edge.url}/readyz").json()["status"] == "ready"
        assert first.post("/v1/systemone", json=REQUEST).status_code == 200  # one that was open before is none too many
    wait_for(lambda: httpx.post(f"{edge.url}/v1/systemone", json=REQUEST).status_code == 200, "there is room again")


def test_a_client_that_reads_none_of_its_answers_is_cut_off(model) -> None:
    with running(model, "--workers=1", "--read-timeout-s=0.2", "--connections=1") as cluster, socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        host, _, port = cluster.url.removeprefix("http://").rpartition(":")
        client.connect((host, int(port)))
        client.sendall(b"GET /openapi.json HTTP/1.1\r\nhost: x\r\n\r\n" * 200)
        wait_for(lambda: cluster.decide("x").status_code == 200, "it no longer takes the only place")


def test_more_connections_than_the_system_allows_are_refused_at_the_start(model) -> None:
    cluster = Cluster(model, "--connections=100000000")
    try:
        assert cluster.process.wait(20) == 1
    finally:
        cluster.close()
    assert "--connections=100000000 needs" in "".join(cluster.lines)


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
    assert guarded.event("serving", keys=["batch", "ci", "key1", "key2", "slow", "tokens"])


def test_workers_hold_no_keys(guarded: Cluster) -> None:
    worker = psutil.Process(guarded.health()["workers"][0]["pid"])
    assert not {"JEV_API_KEY", "OSTRAKA_API_KEYS"} & set(worker.environ())
    assert "PATH" in worker.environ()


def test_requests_beyond_the_rate_are_refused_until_the_time_they_are_told(guarded: Cluster) -> None:
    with httpx.Client(base_url=guarded.url, headers=bearer("s3cret-slow")) as client:
        statuses = [client.post("/v1/systemone", content=b"{}").status_code for _ in range(30)]
        refused = client.post("/v1/systemone", json=REQUEST)
    assert statuses == [422] * 30  # what is refused later counts too
    assert (refused.status_code, detail(refused)["error_type"]) == (429, "rate_limit_error")
    assert 0 < int(refused.headers["retry-after-ms"]) <= 2000
    assert refused.headers["retry-after"] in ("1", "2")
    assert httpx.post(f"{guarded.url}/v1/systemone", json=REQUEST, headers=bearer("s3cret-ci")).status_code == 200


def test_tokens_beyond_the_rate_are_refused_until_the_time_they_are_told(guarded: Cluster) -> None:
    with httpx.Client(base_url=guarded.url, headers=bearer("s3cret-tokens")) as client:
        assert client.post("/v1/systemone", json=REQUEST | {"state": "x" * 1000}).status_code == 200
        refused = client.post("/v1/systemone", json=REQUEST)
        assert (refused.status_code, detail(refused)["error_type"]) == (429, "rate_limit_error")
        assert 0 < int(refused.headers["retry-after-ms"]) < 2000
        waited = float(refused.headers["retry-after-ms"]) / 1000
        wait_for(lambda: client.post("/v1/systemone", json=REQUEST).status_code == 200, "it is told", waited + 5)


def test_without_keys_a_header_is_ignored_and_the_rate_is_everyone_s(model) -> None:
    with running(model, "--workers=1", "--rate-requests-per-min=2") as cluster:
        statuses = [cluster.decide("x", authorization=f"Bearer {n}").status_code for n in range(3)]
        assert statuses == [200, 200, 429]
        assert cluster.client.get("/v1/models").status_code == 200
        assert cluster.event("serving", keys=[])


def test_keys_others_can_read_stop_the_server_at_the_start(model, tmp_path: Path) -> None:
    path = tmp_path / "keys"
    path.write_text("s3cret")
    path.chmod(0o644)
    cluster = Cluster(model, f"--api-keys-file={path}")
    try:
        assert cluster.process.wait(20) == 1
    finally:
        cluster.close()
    assert "chmod o-rwx" in "".join(cluster.lines)
    assert "s3cret" not in "".join(cluster.lines)


def test_an_open_address_without_keys_is_warned_of(model) -> None:
    with running(model, "--workers=1", "--host=0.0.0.0") as cluster:
        assert cluster.event("no_api_keys", host="0.0.0.0")  # noqa: S104
