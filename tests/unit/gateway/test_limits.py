"""Every limit of a request's content, on both sides of it, by the dialects that keep it."""

import json
from dataclasses import fields, replace
from pathlib import Path

import pytest
from pydantic import ValidationError

from ostraka_gateway.dialect import SystemOneDialect
from ostraka_gateway.http_config import HttpConfig
from ostraka_gateway.limits import DEFAULT_LIMITS, REQUEST_CHARS_MAX, Limits
from ostraka_gateway.openai_decisions.dialect import DecisionsDialect
from ostraka_gateway.served_model import ServedModel
from ostraka_shared.codec import MAX_ITEMS
from ostraka_shared.errors import InvalidRequest, PromptTooLong, UnsupportedMediaType
from tests.fake_model import make_fake_model

NOUL = {"type": "noul", "instructions": "Is it?"}
SMALL = Limits(state_bytes=12, text_chars=8, request_questions=2, choice_options=3, score_levels=2)
LARGE = Limits(state_bytes=300_000, text_chars=9000, request_questions=1100, choice_options=300, score_levels=20)


def body(**fields):
    return json.dumps({"state": "x", "questions": {"q": NOUL}, **fields}).encode()


def choice(count):
    return body(questions={"q": {"type": "choice", "criteria": dict.fromkeys(map(str, range(count)))}})


def score(count):
    return body(questions={"q": {"type": "score", "criteria": ["l"] * count}})


def noul(chars):
    return body(questions={"q": {"type": "noul", "instructions": "x" * chars}})


def questions(count):
    return body(questions={str(i): {"type": "noul"} for i in range(count)})


CASES = [
    pytest.param(lambda n: body(state="x" * (n - 2)), "state_bytes", "state_too_long", id="state"),
    pytest.param(lambda n: body(state=["é" * ((n - 4) // 2)]), "state_bytes", "state_too_long", id="structured state"),
    pytest.param(noul, "text_chars", "string_too_long", id="text"),
    pytest.param(questions, "request_questions", "too_long", id="questions"),
    pytest.param(choice, "choice_options", "too_long", id="options"),
    pytest.param(score, "score_levels", "too_long", id="levels"),
]


@pytest.mark.parametrize("limits", [SMALL, DEFAULT_LIMITS, LARGE], ids=["small", "default", "large"])
@pytest.mark.parametrize(("make", "name", "kind"), CASES)
def test_a_limit_is_reached_but_not_passed(make, name, kind, limits):
    dialect = SystemOneDialect("m", limits)
    most = getattr(limits, name)
    dialect.validate(dialect.decode(make(most), None))
    with pytest.raises(ValidationError) as caught:
        dialect.validate(make(most + 2))
    (item,) = caught.value.errors()
    assert item["type"] == kind
    assert str(most) in item["msg"]


def test_the_other_dialect_keeps_them_too():
    dialect = DecisionsDialect("m", SMALL)
    asked = {"model": "jev-latest", "input": "x" * 11, "questions": [{"type": "predicate", "instructions": "?"}]}
    with pytest.raises(InvalidRequest, match="State should have at most 12 bytes as JSON"):
        dialect.validate(asked)
    assert dialect.validate({**asked, "input": "x" * 10})


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return make_fake_model(tmp_path_factory.mktemp("limits") / "model")


def tokenize(folder, limits, encoded):
    return ServedModel(folder, limits).tokenize(SystemOneDialect("m", limits).validate(encoded).request)


def test_prompts_are_counted_before_they_are_made(folder):
    limits = replace(LARGE, request_prompts=9)
    assert len(tokenize(folder, limits, choice(9)).suffixes) == 9
    assert len(tokenize(folder, limits, score(10)).suffixes) == 9
    for encoded in (choice(10), score(11), questions(10)):
        with pytest.raises(InvalidRequest, match="make 10 prompts; at most 9 in one request"):
            tokenize(folder, limits, encoded)


def test_their_characters_are_counted_before_they_are_made(folder):
    chars = tokenize(folder, LARGE, noul(10)).input_tokens + len("<s>") - 1  # all but the mark are a token a character
    with pytest.raises(InvalidRequest, match=r"1 prompts of \d+ characters together; at most 70 in one request"):
        tokenize(folder, replace(LARGE, request_chars=70), noul(100))
    with pytest.raises(InvalidRequest):
        tokenize(folder, replace(LARGE, request_chars=chars - 1), noul(10))
    assert tokenize(folder, replace(LARGE, request_chars=chars), noul(10))


@pytest.mark.parametrize("name", [each.name for each in fields(Limits)])
def test_a_limit_is_at_least_one(name):
    with pytest.raises(ValueError, match=f"--{name.replace('_', '-')} must be at least 1, not 0"):
        Limits(**{name: 0})


def test_a_prompt_too_long_is_told_before_all_prompts_together(folder):
    encoded = body(state="x" * 9000, questions={"s": {"type": "score", "criteria": ["l"]}, "q": NOUL, "r": NOUL})
    with pytest.raises(PromptTooLong, match="'q'"):
        tokenize(folder, replace(LARGE, request_chars=100), encoded)


def test_a_state_is_measured_as_the_prompt_has_it_before_it_is_written(folder):
    state = [[["x"] * 20]]
    with pytest.raises(PromptTooLong, match="the state has 176 characters as the model reads it"):
        tokenize(folder, replace(LARGE, request_chars=175), body(state=state))


@pytest.mark.parametrize(("name", "most"), [("request_prompts", MAX_ITEMS), ("request_chars", REQUEST_CHARS_MAX)])
def test_what_the_wire_cannot_hold_is_refused_at_the_start(name, most):
    assert Limits(**{name: most})
    with pytest.raises(ValueError, match=f"must be at most {most}"):
        Limits(**{name: most + 1})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("body_bytes", 0),
        ("connections", 0),
        ("read_timeout_s", 0.0),
        ("read_timeout_s", float("nan")),
        ("rate_requests_per_min", -1),
        ("rate_tokens_per_s", -1),
    ],
)
def test_a_setting_that_cannot_work_is_refused(name, value):
    with pytest.raises(ValueError, match=f"--{name.replace('_', '-')} must be at least"):
        HttpConfig(**{name: value})


@pytest.mark.parametrize("content_type", ["multipart/form-data; boundary=x", "Multipart/Mixed"])
def test_parts_are_not_read(content_type):
    with pytest.raises(UnsupportedMediaType, match="application/json"):
        SystemOneDialect("m").decode(b"", content_type)


@pytest.mark.parametrize("content_type", [None, "application/json", "text/plain", "application/x-www-form-urlencoded"])
def test_any_other_type_may_carry_json(content_type):
    assert SystemOneDialect("m").decode(b"{}", content_type) == b"{}"


@pytest.mark.parametrize(
    ("fields", "loc", "msg"),
    [
        ({"assets": {"a": {"type": "image"}}}, ["body", "assets"], "This server reads text only: leave `assets` out"),
        (
            {"questions": {"q": {"type": "box"}}},
            ["body", "questions", "q"],
            "Input should have a `type` of 'noul', 'choice' or 'score'",
        ),
    ],
)
def test_images_and_boxes_are_refused_in_words(fields, loc, msg):
    dialect = SystemOneDialect("m")
    with pytest.raises(ValidationError) as caught:
        dialect.validate(body(**fields))
    (item,) = json.loads(dialect.refuse(caught.value).body)["detail"]
    assert (item["loc"], item["msg"]) == (loc, msg)


DOCUMENT = Path(__file__).parents[3] / "docs" / "limits.md"


@pytest.mark.parametrize(
    "limit",
    [each for settings in (Limits, HttpConfig) for each in fields(settings) if type(each.default) in (int, float)],
)
def test_the_document_has_every_limit_and_its_default(limit):
    default = f"{int(limit.default):,}" if limit.default else "0 (none)"
    assert f"| `--{limit.name.replace('_', '-')}` | {default} |" in DOCUMENT.read_text(encoding="utf-8")
