"""Errors as responses."""

import json

import pytest

from ostraka_gateway.jevos.dialect import JevosDialect
from ostraka_gateway.jevos.problems import from_error, unrouted
from ostraka_gateway.limits import Limits
from ostraka_shared import errors
from tests.unit.gateway.jevos.asking import JSON, NOUL, body, encode


@pytest.mark.parametrize(
    ("error", "status", "detail"),
    [
        (errors.Unauthenticated("x"), 401, "Missing or invalid API key"),
        (errors.BodyTooLarge("x"), 413, "Error"),
        (errors.Unreadable("damaged"), 400, "damaged"),
        (errors.RequestTooSlow("slow"), 408, "slow"),
        (errors.Overloaded("busy", 1.5), 529, "busy"),
        (errors.NoWorkerReady("none"), 503, "none"),
        (errors.DeadlineExceeded("late"), 504, "late"),
    ],
)
def test_words_instead_of_items(error: Exception, status: int, detail: str) -> None:
    problem = from_error(error)
    assert (problem.status, json.loads(problem.body)) == (status, {"detail": detail})
    assert problem.headers["content-type"] == "application/json"


def test_headers_are_the_same_in_every_dialect() -> None:
    assert from_error(errors.Unauthenticated("x")).headers["www-authenticate"] == "Bearer"
    assert from_error(errors.Overloaded("busy", 1.5)).headers["retry-after-ms"] == "1500"


@pytest.mark.parametrize(
    "error", [RuntimeError("secret"), errors.EngineFailed("x"), errors.PoisonedRequest("x"), errors.WireError("r", "x")]
)
def test_our_own_faults_are_plain_text(error: Exception) -> None:
    problem = from_error(error)
    assert (problem.status, problem.body) == (500, b"Internal Server Error")
    assert problem.headers == {"content-type": "text/plain; charset=utf-8"}


def test_items() -> None:
    too_long = errors.PromptTooLong("q has 9 tokens", loc=("body", "questions", "q"), kind="prompt_too_long")
    expected = {"loc": ["body"], "msg": "q has 9 tokens", "type": "value_error"}
    assert json.loads(from_error(too_long).body) == {"detail": [expected]}
    other = errors.InvalidRequest("é", loc=("header", "x"), kind="too_long")
    assert from_error(other).body == '{"detail":[{"loc":["header","x"],"msg":"é","type":"too_long"}]}'.encode()
    assert from_error(errors.RequestError("new")).status == 422


@pytest.mark.parametrize(
    ("method", "allow", "status", "told"),
    [
        ("PUT", "POST", 405, "POST"),
        ("DELETE", "GET, HEAD", 405, "GET"),
        ("OPTIONS", "POST", 404, None),
        ("GET", "", 404, None),
    ],
)
def test_unrouted(method: str, allow: str, status: int, told: str | None) -> None:
    problem = unrouted(method, "/x", allow)
    assert (problem.status, problem.headers.get("allow")) == (status, told)


@pytest.mark.parametrize(
    ("limits", "status"), [(Limits(), 200), (Limits(state_bytes=9), 422), (Limits(text_chars=5), 422)]
)
def test_the_operators_limits_hold_here_too(limits: Limits, status: int) -> None:
    dialect = JevosDialect("served", limits)
    decoded = dialect.decode(encode(body({"q": NOUL}, state="12345678")), JSON)
    if status == 200:
        dialect.validate(decoded)
    else:
        with pytest.raises(errors.RequestError):
            dialect.validate(decoded)


def test_answers_have_the_default_dialects_bytes() -> None:
    dialect = JevosDialect("served")
    asked = dialect.validate(dialect.decode(encode(body({"q": NOUL})), JSON))
    usage = '"usage":{"input_tokens":7,"output_tokens":0}'
    answer = dialect.answer(asked, [1e-05], 7)
    assert answer.decode() == f'{{"model":"served","answers":{{"q":{{"type":"noul","noul":1e-05}}}},{usage}}}'
