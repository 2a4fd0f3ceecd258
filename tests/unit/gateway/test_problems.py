import json
import math

import pytest
from pydantic import ValidationError

from ostraka_gateway import problems
from ostraka_gateway.schemas import parse_request
from ostraka_shared import errors


def detail(problem):
    assert problem.headers["content-type"] == "application/json"
    return json.loads(problem.body)["detail"]


@pytest.mark.parametrize(
    ("error", "status", "error_type"),
    [
        (errors.RateLimited, 429, "rate_limit_error"),
        (errors.Overloaded, 529, "overloaded_error"),
        (errors.TooManyConnections, 503, "overloaded_error"),
        (errors.NoWorkerReady, 503, "no_worker_ready"),
        (errors.Draining, 503, "draining"),
        (errors.DeadlineExceeded, 504, "deadline_exceeded"),
        (errors.EngineFailed, 500, "engine_failed"),
        (errors.PoisonedRequest, 500, "poisoned_request"),
        (errors.Unauthenticated, 401, "authentication_error"),
        (errors.Unreadable, 400, "invalid_request_error"),
        (errors.UnknownModel, 400, "api_usage_error"),
        (errors.RequestTooSlow, 408, "request_timeout"),
        (errors.BodyTooLarge, 413, "body_too_large"),
        (errors.UnsupportedMediaType, 415, "unsupported_media_type"),
        (errors.HeadersTooLarge, 431, "headers_too_large"),
    ],
)
def test_an_error_is_its_type_and_message(error, status, error_type):
    problem = problems.from_error(error("Why."))
    assert problem.status == status
    assert detail(problem) == {"error_type": error_type, "message": "Why."}
    assert problem.body == b'{"detail":{"error_type":"%s","message":"Why."}}' % error_type.encode()


@pytest.mark.parametrize(
    ("error", "headers"),
    [
        (errors.Unauthenticated("Why."), {"www-authenticate": "Bearer"}),
        (errors.UnsupportedMediaType("Why.", "zstd, gzip"), {"accept-encoding": "zstd, gzip"}),
        (errors.UnsupportedMediaType("Why."), {}),
        (errors.RequestTooSlow("Why."), {"connection": "close"}),
        (errors.BodyTooLarge("Why."), {}),
    ],
)
def test_a_refusal_says_in_headers_what_clients_read_there(error, headers):
    assert problems.from_error(error).headers == {"content-type": "application/json", **headers}


def test_every_serving_error_has_a_status():
    assert {leaf.code for leaf in errors.ServingError.__subclasses__()} <= set(problems.STATUS)


@pytest.mark.parametrize("error", [errors.InvalidRequest, errors.PromptTooLong])
def test_a_wrong_request_is_422_with_a_location(error):
    problem = problems.from_error(error("Why.", loc=("body", "questions", "q", 0), kind="some_kind"))
    assert problem.status == 422
    assert problem.body == b'{"detail":[{"loc":["body","questions","q",0],"msg":"Why.","type":"some_kind"}]}'


def test_a_request_error_without_location_is_the_body_s():
    problem = problems.from_error(errors.RequestError("Why."))
    assert problem.status == 422
    assert detail(problem) == [{"loc": ["body"], "msg": "Why.", "type": "value_error"}]


def test_a_validation_error_is_422_with_every_item():
    with pytest.raises(ValidationError) as caught:
        parse_request(b'{"state":3}')
    problem = problems.from_validation(caught.value)
    assert problem.status == 422
    assert [item["loc"] for item in detail(problem)] == [["body", "state"], ["body", "questions"]]
    assert all(set(item) == {"loc", "msg", "type"} for item in detail(problem))


@pytest.mark.parametrize(
    "error",
    [
        ValueError("secret"),
        KeyError("secret"),
        errors.OstrakaError("secret"),
        errors.ServingError("secret"),
        errors.ConfigError("secret"),
        errors.ModelDamaged("secret"),
        errors.WireError("garbage", "secret"),
    ],
)
def test_anything_unexpected_is_500_and_tells_nothing(error):
    problem = problems.from_error(error)
    assert problem.status == 500
    assert detail(problem)["error_type"] == "internal_error"
    assert b"secret" not in problem.body


def test_a_stray_validation_error_is_not_blamed_on_the_client():
    with pytest.raises(ValidationError) as caught:
        parse_request(b"{}")
    assert problems.from_error(caught.value).status == 500


@pytest.mark.parametrize(
    ("retry_after_s", "retry_after_ms", "retry_after"),
    [(0.0, "0", "0"), (0.0301, "31", "1"), (1.0, "1000", "1"), (1.2, "1200", "2"), (-3.0, "0", "0")],
)
@pytest.mark.parametrize("error", [errors.Overloaded, errors.NoWorkerReady, errors.Draining, errors.DeadlineExceeded])
def test_a_wait_is_told_in_both_headers_rounded_up(error, retry_after_s, retry_after_ms, retry_after):
    headers = problems.from_error(error("Later.", retry_after_s=retry_after_s)).headers
    assert headers == {
        "content-type": "application/json",
        "retry-after-ms": retry_after_ms,
        "retry-after": retry_after,
    }


@pytest.mark.parametrize("retry_after_s", [None, math.inf, math.nan])
def test_no_wait_is_told_where_none_is_known(retry_after_s):
    assert problems.from_error(errors.Overloaded("Later.", retry_after_s)).headers == {
        "content-type": "application/json"
    }


def test_a_known_path_keeps_its_allow_header():
    problem = problems.method_not_allowed("POST")
    assert problem.status == 405
    assert problem.headers["allow"] == "POST"
    assert detail(problem)["error_type"] == "method_not_allowed"


@pytest.mark.parametrize(
    ("problem", "status", "code"),
    [
        (problems.not_found("/x"), 404, "not_found"),
        (problems.from_error(errors.BodyTooLarge("At most 1000 bytes.")), 413, "body_too_large"),
        (problems.from_error(errors.UnsupportedMediaType("Not so.")), 415, "unsupported_media_type"),
    ],
)
def test_the_edge_s_own_problems_have_the_same_shape(problem, status, code):
    assert problem.status == status
    assert set(detail(problem)) == {"error_type", "message"}
    assert detail(problem)["error_type"] == code


def test_a_doubled_v1_is_told_what_to_change():
    assert "base URL" in detail(problems.not_found("/v1/v1/systemone"))["message"]
    assert "base URL" not in detail(problems.not_found("/v1/nothing"))["message"]


def test_a_lone_surrogate_in_a_message_does_not_stop_it():
    problem = problems.from_error(errors.InvalidRequest("no model \ud800", loc=("body", "\udfff")))
    assert problem.body.decode()
    assert detail(problem)[0]["msg"] == "no model ?"


def test_text_is_written_raw():
    assert "질문".encode() in problems.from_error(errors.InvalidRequest("질문")).body
