"""`ostraka serve --compat jevos` against cases written from jev's rules, over HTTP, with the fake engine."""

import hashlib
import json
import re
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import httpx
import pytest

from tests.cluster import Cluster, running
from tests.fake_model import make_fake_model

CASES = json.loads(Path(__file__).with_name("jevos-cases.json").read_text(encoding="utf-8"))["cases"]
SERVED = "jevos-test"
BY_NAME = {case["name"]: case for case in CASES}
KEYLESS: tuple = ()


class Servers:
    """One server for each environment a case asks for, started when the first one does."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self._model = make_fake_model(folder / "model").path
        self._stack = stack
        self._started: dict[tuple, Cluster] = {}

    def __getitem__(self, environment: tuple) -> Cluster:
        if environment not in self._started:
            flags = ["--workers=1", "--compat=jevos", f"--name={SERVED}"]
            server = running(self._model, *flags, env={"JEV_API_KEY": "", **dict(environment)})
            self._started[environment] = self._stack.enter_context(server)
        return self._started[environment]

    def send(self, case: dict) -> httpx.Response:
        url = self[tuple(case.get("server", {}).items())].url
        headers = case.get("headers")
        if headers is None:
            headers = {"Content-Type": "application/json"} if "body" in case else {}
        with httpx.Client(base_url=url, timeout=60) as client:
            return client.request(case["method"], case["path"], content=body_of(case), headers=headers)


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    with ExitStack() as stack:
        yield Servers(tmp_path_factory.mktemp("jevos"), stack)


def body_of(case: dict) -> bytes | None:
    if "body" in case:
        return json.dumps(expand(case["body"])).encode()
    if "raw_body" in case:
        return case["raw_body"].encode()
    if "raw_body_hex" in case:
        return bytes.fromhex(case["raw_body_hex"])
    if "raw_body_template" in case:
        parts = case["raw_body_template"]
        text, count = parts["repeat"]
        return f"{parts['before']}{text * count}{parts['after']}".encode()
    return None


def expand(value):  # noqa: PLR0911  one for each form
    match value:
        case {"$repeat": [text, count]}:
            return text * count
        case {"$nest_list": depth}:
            nested = 1
            for _ in range(depth):
                nested = [nested]
            return nested
        case {"$many_questions": count}:
            return {f"q{number}": {"type": "noul", "instructions": "Yes?"} for number in range(count)}
        case {"$many_options": count}:
            return {f"o{number}": None for number in range(count)}
        case {"$key_repeat": [text, count], "value": inner}:
            return {text * count: expand(inner)}
        case dict():
            return {key: expand(inner) for key, inner in value.items()}
        case list():
            return [expand(inner) for inner in value]
        case _:
            return value


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_case(case: dict, servers: Servers) -> None:
    response, expected = servers.send(case), case["expect"]
    assert (response.status_code, response.headers["content-type"]) == (expected["status"], expected["content_type"])
    for name, pattern in expected.get("response_headers", {}).items():
        assert re.search(pattern, response.headers[name])
    assert not set(expected.get("absent_headers", [])) & set(response.headers)
    body = response.json()
    assert response.content == json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode()
    if "json" in expected:
        assert json.dumps(body) == json.dumps(expected["json"])  # order too
    if "detail" in expected:
        check_detail(body["detail"], expected["detail"])
    if "model" in expected:
        assert body["model"] == expected["model"]
    if "answers" in expected:
        check_answers(body, expected["answers"])
    for invariant in expected.get("invariants", []):
        if invariant.startswith("same_noul_as_case:"):
            name = re.sub(r" \(within .*\)$", "", invariant.partition(":")[2])
            other = servers.send(BY_NAME[name]).json()
            assert nouls(body) == nouls(other)


def check_detail(found: list[dict], expected: list[dict]) -> None:
    assert len(found) == len(expected)
    for item, wanted in zip(found, expected, strict=True):
        assert {name: item[name] for name in wanted} == wanted
        ctx = ["ctx"] if "ctx" in item else []
        assert list(item) in (["loc", "msg", "type"], ["type", "loc", "msg", "input", *ctx])


def check_answers(body: dict, expected: dict) -> None:
    assert list(body) == ["model", "answers", "usage"]
    assert (body["model"], list(body["answers"])) == (SERVED, list(expected))
    assert (list(body["usage"]), body["usage"]["output_tokens"]) == (["input_tokens", "output_tokens"], 0)
    assert type(body["usage"]["input_tokens"]) is int
    assert body["usage"]["input_tokens"] > 0
    for question_id, wanted in expected.items():
        answer = body["answers"][question_id]
        assert (list(answer), answer["type"]) == (wanted["keys"], wanted["type"])
        match answer["type"]:
            case "noul":
                assert 0 <= answer["noul"] <= 1
            case "choice":
                check_choice(answer, wanted.get("options"))
            case "score":
                check_score(answer, wanted.get("legend"))


def check_choice(answer: dict, options: list[str] | None) -> None:
    probabilities = answer["probabilities"]
    assert options in (None, list(probabilities))
    assert sum(probabilities.values()) == pytest.approx(1)
    highest, uniform = max(probabilities.values()), 1 / len(probabilities)
    assert answer["choice"] == next(name for name, p in probabilities.items() if p == highest)
    assert answer["confidence"] == pytest.approx((highest - uniform) / (1 - uniform))


def check_score(answer: dict, legend: dict | None) -> None:
    p = list(answer["probabilities"].values())
    assert legend in (None, answer["legend"])
    assert list(answer["legend"]) == list(answer["probabilities"]) == [str(level) for level in range(len(p))]
    assert sum(p) == pytest.approx(1)
    assert answer["score"] == pytest.approx(sum(level * weight for level, weight in enumerate(p)))
    mode = p.index(max(p))
    spread = sum(weight * abs(level - mode) for level, weight in enumerate(p))
    uniform = sum(abs(level - (len(p) - 1) / 2) for level in range(len(p))) / len(p)
    assert answer["confidence"] == pytest.approx(min(1, max(0, 1 - spread / uniform)))


def nouls(body: dict) -> list[float]:
    return [answer["noul"] for answer in body["answers"].values()]


def test_health_is_jevs(servers: Servers) -> None:
    health = servers[KEYLESS].health()
    assert list(health) == ["status", "model", "model_files", "fingerprint", "engine"]
    assert (health["status"], health["model"]) == ("ready", SERVED)
    assert all(re.fullmatch("[0-9a-f]{64}", digest) for digest in health["model_files"].values())
    lines = "".join(f"{digest}  {name}\n" for name, digest in sorted(health["model_files"].items()))
    assert health["fingerprint"] == hashlib.sha256(lines.encode()).hexdigest()
    engine = [
        "runtime",
        "version",
        "device",
        "model_dir",
        "dynamic_quantization",
        "state_snapshots",
        "batched_requests",
    ]
    assert list(health["engine"]) == engine
    snapshots = ["kept", "max", "tokens", "max_tokens", "hits", "misses", "reused_tokens", "bytes"]
    assert list(health["engine"]["state_snapshots"]) == snapshots


def test_models_are_the_served_one_and_its_alias(servers: Servers) -> None:
    body = servers[KEYLESS].client.get("/v1/models").json()
    assert list(body) == ["models"]
    assert [list(model) for model in body["models"]] == [["name", "description", "release_date"]] * 2
    assert [model["name"] for model in body["models"]] == [SERVED, "jev-latest"]
    assert all(re.fullmatch(r"\d{4}-\d\d-\d\d", model["release_date"]) for model in body["models"])


def test_1024_answers_come_in_order(servers: Servers) -> None:
    body = servers.send(BY_NAME["1024 questions are accepted"]).json()
    assert list(body["answers"]) == [f"q{number}" for number in range(1024)]


def test_duplicate_keys_read_as_their_last_value(servers: Servers) -> None:
    doubled = servers.send(BY_NAME["raw body: duplicate keys, last value wins at the first key's place"]).json()
    questions = {"b": {"type": "noul", "instructions": "Blue?"}, "a": {"type": "noul", "instructions": "Old?"}}
    plain = servers[KEYLESS].decide("The box is blue.", questions).json()
    assert doubled == plain


@pytest.mark.parametrize(
    ("method", "path", "status", "allow"),
    [
        ("GET", "/v1/systemone", 405, "POST"),
        ("HEAD", "/v1/systemone", 405, "POST"),
        ("PATCH", "/v1/models", 405, "GET"),
        ("HEAD", "/v1/models", 200, None),
        ("HEAD", "/health", 200, None),
        ("HEAD", "/metrics", 200, None),
        ("OPTIONS", "/health", 404, None),
        ("OPTIONS", "/v1/systemone", 404, None),
        ("POST", "/v1/systemone/", 404, None),
        ("GET", "/health/", 404, None),
        ("POST", "/v1/decisions", 404, None),
        ("GET", "/openapi.json", 404, None),
        ("GET", "/docs", 404, None),
    ],
)
def test_methods_and_paths(servers: Servers, method: str, path: str, status: int, allow: str | None) -> None:
    response = servers[KEYLESS].client.request(method, path)
    assert (response.status_code, response.headers.get("allow")) == (status, allow)
    words = {405: "Method Not Allowed", 404: "Not Found"}
    if status != 200 and method != "HEAD":
        assert response.json() == {"detail": words[status]}


KEYED = (("JEV_API_KEY", "k-123"),)


@pytest.mark.parametrize(
    ("content_type", "body", "status"),
    [
        ("application/json", b"{", 422),
        ("application/json", b"\xff", 400),
        ("text/plain", b"\xff", 422),
        ("application/json", b"", 401),
        ("application/json", b"null", 401),
        ("application/json", b"{}", 401),
        ("text/plain", b"hello", 401),
    ],
)
def test_the_body_is_read_before_the_key(servers: Servers, content_type: str, body: bytes, status: int) -> None:
    headers = {"Content-Type": content_type}
    response = servers[KEYED].client.post("/v1/systemone", content=body, headers=headers)
    assert response.status_code == status
    assert ("www-authenticate" in response.headers) == (status == 401)


@pytest.mark.parametrize(
    "sent", ["Bearer  k-123", "BEARER k-123", "Bearer k-12", "Bearer k-1234", "k-123", "Bearer", "Basic k-123"]
)
def test_the_key_is_sent_exactly(servers: Servers, sent: str) -> None:
    response = servers[KEYED].client.get("/v1/models", headers={"Authorization": sent})
    assert response.status_code == 401
    right = servers[KEYED].client.get("/v1/models", headers={"Authorization": "Bearer k-123"})
    assert right.status_code == 200


def test_too_large_a_body_is_jevs_error(servers: Servers) -> None:
    response = servers[KEYLESS].client.post("/v1/systemone", content=b" " * (16 * 1024 * 1024 + 1))
    assert (response.status_code, response.json()) == (413, {"detail": "Error"})


def test_a_failed_call_is_plain_text(servers: Servers) -> None:
    response = servers[KEYLESS].decide("<fail>")
    assert (response.status_code, response.text) == (500, "Internal Server Error")
    assert response.headers["content-type"] == "text/plain; charset=utf-8"


def test_a_prompt_too_long_is_told_though_all_of_them_are_too_much_together(servers: Servers) -> None:
    questions = expand({"$many_questions": 1000})
    response = servers[KEYLESS].decide("long " * 4000, questions)
    (item,) = response.json()["detail"]
    assert (response.status_code, item["loc"], item["type"]) == (422, ["body"], "value_error")
    assert "'q0'" in item["msg"]


def test_what_jev_has_no_answer_for_keeps_our_status_and_words(servers: Servers) -> None:
    response = servers[KEYLESS].decide("x", **{"x-deadline-ms": "0"})
    (item,) = response.json()["detail"]
    assert (response.status_code, item["loc"]) == (422, ["header", "x-deadline-ms"])
    response = servers[KEYLESS].decide("y" * 8000, expand({"$many_questions": 20}), **{"x-deadline-ms": "1"})
    assert response.status_code in (529, 504)
    assert list(response.json()) == ["detail"]
    assert isinstance(response.json()["detail"], str)
