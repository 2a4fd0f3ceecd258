"""The HTTP edge of real servers: what is refused, when, and in which words; every flag by its effect."""

import contextlib
import gzip
import json
import socket
import sys
import zlib
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from typesafe_sdk import Noul, TypeSafeClient

from ostraka_gateway.arrival import HEAD_BYTES_MAX
from tests.cluster import STOP_S, Cluster, running, wait_for
from tests.fake_model import make_fake_model
from tests.integration.edge_requests import ALIASES, HEAD, NOUL, REQUEST, connected, detail, post

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

READ_TIMEOUT_S = 0.5
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
ENCODE = {"zstd": zstd.compress, "gzip": gzip.compress, "deflate": zlib.compress}


@pytest.fixture(scope="module")
def edge(model) -> Iterator[Cluster]:
    with running(model, *FLAGS) as cluster:
        yield cluster


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
    gateway = edge.gateways()["gateway"]
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
    with running(stalling, "--workers=1", f"--read-timeout-s={READ_TIMEOUT_S}") as cluster:
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
    assert "\nostraka_wanted_workers 1.0\n" in edge.client.get("/metrics").text


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
    most = [header(b"host", b"x"), header(b"connection", b"close"), *[header(b"x-y", b"z" * 8000)] * 8]
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
        assert cluster.process.wait(STOP_S) == 1
    finally:
        cluster.close()
    assert "--connections=100000000 needs" in "".join(cluster.lines)
