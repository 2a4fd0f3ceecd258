"""Whatever is sent over a connection, each request is answered in JSON, with its id, and never as the server's fault."""

import http.client
import json
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.cluster import Cluster

ANSWER_S = 20.0
PATHS = ("/v1/systemone", "/v1/decisions", "/systemone", "/api/v1/systemone", "/api/alpha/decisions")
OTHER_PATHS = ("/", "/v1/models", "/v1/v1/systemone", "/v1/systemone/", "/%00", "/v1/systemone?a=%FF", "//", "/..")
SYSTEM_ONE: dict[str, Any] = {
    "model": "jev-latest",
    "state": {"text": "Ünïcode ✓", "list": [1, 2.5, None, True]},
    "questions": {
        "a": {"type": "noul", "instructions": "Is it so?", "criteria": {"true": "y", "false": None}},
        "b": {"type": "choice", "instructions": {"who": []}, "criteria": {"x": None, "y": "why"}},
        "c": {"type": "score", "criteria": ["low", {"mid": 1}, "high"]},
    },
}
DECISIONS: dict[str, Any] = {
    "model": "jev-latest",
    "input": [
        {"role": "user", "content": [{"type": "input_text", "text": "hi"}, {"type": "input_json", "data": {"a": 1}}]},
        {"type": "function_call", "call_id": "1", "name": "f", "arguments": '{"a": 1}'},
        {"type": "function_call_output", "call_id": "1", "output": "done"},
    ],
    "questions": [
        {"type": "predicate", "name": "p", "instructions": "It is so."},
        {"type": "choice", "instructions": "Who?", "choices": [{"value": "x"}, {"value": True, "description": "d"}]},
        {"type": "score", "instructions": "How?", "levels": [{"label": "low"}, {"label": "high"}]},
    ],
}
HEADERS: dict[str, list[str]] = {
    "content-type": ["application/json", "text/plain", "multipart/form-data; boundary=x", "", "a/b;charset=utf-16"],
    "content-encoding": ["gzip", "zstd", "deflate", "identity", "br", "gzip, gzip", ""],
    "x-deadline-ms": ["60000", "0", "-1", "1e3", "999999999999", "", "\xb2"],
    "authorization": ["Bearer x", "", "Basic eDp4"],
    "accept-encoding": ["zstd", "gzip;q=2", "*", "q=;;,,"],
}
ODD_BYTES = [b"\x00", b"\xff", b"\xef\xbb\xbf", b"\\ud800", b"NaN", b"1e999", b"[" * 300, b'"', b"}", b"-", b"9" * 5000]

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20) | st.just("x" * 9000),
    lambda children: st.lists(children, max_size=4) | st.dictionaries(st.text(max_size=8), children, max_size=4),
    max_leaves=8,
)


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The path of everything in a JSON value but itself."""
    steps = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for step, inner in steps:
        yield (*path, step)
        yield from places(inner, (*path, step))


@st.composite
def wrong_bodies(draw: st.DrawFn) -> bytes:
    """A right body with up to two things changed, left out or added."""
    body = json.loads(json.dumps(draw(st.sampled_from([SYSTEM_ONE, DECISIONS]))))
    for _ in range(draw(st.integers(0, 2))):
        found = list(places(body))
        *path, last = draw(st.sampled_from(found)) if found else ["questions"]
        holder = body
        for step in path:
            holder = holder[step]
        match draw(st.sampled_from(["change", "remove", "add", "repeat"])):
            case "change":
                holder[last] = draw(json_values)
            case "remove" if found:
                del holder[last]
            case "add" if isinstance(holder, dict):
                holder[draw(st.text(max_size=200))] = draw(json_values)
            case "repeat" if isinstance(holder, list):
                holder.extend(holder[:1] * draw(st.sampled_from([1, 10, 300])))
            case _:
                pass
    return json.dumps(body).encode()


@st.composite
def broken_bodies(draw: st.DrawFn) -> bytes:
    """A right body whose bytes were cut, repeated or overwritten."""
    body = json.dumps(draw(st.sampled_from([SYSTEM_ONE, DECISIONS]))).encode()
    for _ in range(draw(st.integers(1, 3))):
        start = draw(st.integers(0, len(body)))
        end = draw(st.integers(start, min(len(body), start + 40)))
        body = body[:start] + draw(st.sampled_from(ODD_BYTES) | st.binary(max_size=8)) + body[end:]
    return body


requests = st.fixed_dictionaries(
    {
        "method": st.sampled_from(["POST"] * 40 + ["GET", "PUT", "DELETE", "PATCH", "OPTIONS"]),
        "url": st.sampled_from(PATHS * 10 + OTHER_PATHS),
        "body": wrong_bodies() | broken_bodies() | st.binary(max_size=200),
        "headers": st.dictionaries(st.sampled_from(sorted(HEADERS)), st.integers(0, 4), max_size=1).map(
            lambda chosen: {name: HEADERS[name][place % len(HEADERS[name])] for name, place in chosen.items()}
        ),
    }
)


@pytest.fixture(scope="module")
def connection(served: Cluster) -> Iterator[http.client.HTTPConnection]:
    found = http.client.HTTPConnection(urlsplit(served.url).netloc, timeout=ANSWER_S)
    yield found
    found.close()


def refuse_constant(text: str) -> None:
    raise AssertionError(f"{text} is not JSON")


def ask(connection: http.client.HTTPConnection, asked: dict[str, Any]) -> tuple[int, bytes]:
    connection.request(**asked)
    response = connection.getresponse()
    body = response.read()
    assert response.headers["x-typesafe-request-id"].startswith("req_")
    if response.headers["content-encoding"] is None:
        assert response.headers["content-type"].startswith("application/json")
        json.loads(body, parse_constant=refuse_constant)
    assert (connection.sock is None) == (response.headers["connection"] == "close")
    return response.status, body


@settings(max_examples=300, derandomize=True, database=None, deadline=None, suppress_health_check=list(HealthCheck))
@given(asked=requests)
def test_any_request_is_answered(connection: http.client.HTTPConnection, asked: dict[str, Any]) -> None:
    assert ask(connection, asked)[0] < 500


def test_the_server_is_as_it_was(served: Cluster, connection: http.client.HTTPConnection) -> None:
    """Asked in any order, before, after: the same answers, and never a worker lost."""
    for path, body in (("/v1/systemone", SYSTEM_ONE), ("/v1/decisions", DECISIONS)):
        sent = {"method": "POST", "url": path, "body": json.dumps(body).encode(), "headers": {}}
        first, second = ask(connection, sent), ask(connection, sent)
        assert first == second
        assert first[0] == 200
    assert served.health()["workers"][0]["restarts"] == 0
