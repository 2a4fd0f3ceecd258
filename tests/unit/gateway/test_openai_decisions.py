"""OpenAI's Decisions form against System One's: what is asked, what is answered, what is refused."""

import json

import pytest
from pydantic import ValidationError

from ostraka_gateway.dialect import SystemOneDialect
from ostraka_gateway.limits import Limits
from ostraka_gateway.openai_decisions.dialect import DecisionsDialect, EitherDialect
from ostraka_shared import errors

PREDICATE = {"type": "predicate", "instructions": "It is late."}
CHOICE = {"type": "choice", "instructions": "Who?", "choices": [{"value": "a"}, {"value": "b", "description": "B!"}]}
SCORE = {"type": "score", "instructions": "How?", "levels": [{"label": "low"}, {"label": "high", "description": "H"}]}
OPENAI = DecisionsDialect("served")


def ask(**fields):
    body = {"model": "served", "input": "x", "questions": [PREDICATE]} | fields
    return OPENAI.validate(OPENAI.decode(json.dumps(body).encode(), None))


def state_of(*items):
    return ask(input=list(items)).request.state


def question_of(question):
    return ask(questions=[question]).request.questions["0"].model_dump()


def answers_of(questions, p_yes):
    return json.loads(OPENAI.answer(ask(questions=questions), p_yes, 7))["answers"]


def refusal_of(**fields):
    """(status, code, param, message)"""
    with pytest.raises((ValidationError, errors.RequestError)) as caught:
        ask(**fields)
    problem = OPENAI.refuse(caught.value)
    error = json.loads(problem.body)["error"]
    assert error["type"] == "invalid_request_error"
    return problem.status, error["code"], error["param"], error["message"]


# What is asked


def test_each_kind_becomes_the_system_one_kind():
    assert question_of(PREDICATE) == {"type": "noul", "instructions": "It is late.", "criteria": None}
    assert question_of(CHOICE)["criteria"] == {"a": None, "b": "B!"}
    assert question_of(SCORE)["criteria"] == ["low", "high: H"]


def test_names_may_repeat_or_be_missing():
    asked = ask(questions=[PREDICATE | {"name": "n"}, PREDICATE | {"name": "n"}, PREDICATE, PREDICATE | {"name": None}])
    answers = json.loads(OPENAI.answer(asked, [0.1, 0.2, 0.3, 0.4], 1))["answers"]
    assert [(a["name"], a["probability"]) for a in answers] == [("n", 0.1), ("n", 0.2), (None, 0.3), (None, 0.4)]


def test_booleans_and_texts_of_the_same_spelling_are_different_choices():
    values = [True, "true", "true (boolean)", False]
    choice = CHOICE | {"choices": [{"value": value} for value in values]}
    names = ["true (boolean) (boolean)", "true", "true (boolean)", "false"]
    assert list(question_of(choice)["criteria"]) == names
    for best, value in enumerate(values):
        (answer,) = answers_of([choice], [float(place == best) for place in range(4)])
        assert answer["choice"] is value or answer["choice"] == value != (not value)
        assert [p["value"] for p in answer["probabilities"]] == values
        assert type(answer["choice"]) is type(value)


@pytest.mark.parametrize(
    ("items", "state"),
    [
        ([{"role": "user", "content": "hi"}], "hi"),
        ([{"type": "message", "role": "user", "content": [{"type": "input_text", "text": "hi"}]}], "hi"),
        ([{"role": "user", "content": [{"type": "input_json", "data": {"a": 1}}]}], {"a": 1}),
        ([{"role": "user", "content": [{"type": "input_text", "text": t} for t in "ab"]}], "a\nb"),
        (
            [{"role": "user", "content": [{"type": "input_text", "text": "a"}, {"type": "input_json", "data": [{}]}]}],
            ["a", [{}]],
        ),
        ([{"role": "system", "content": "be"}], [{"role": "system", "content": "be"}]),
        (
            [{"role": "assistant", "content": [{"type": "refusal", "refusal": "no"}]}],
            [{"role": "assistant", "content": "no"}],
        ),
        ([], []),
    ],
)
def test_messages_become_a_state(items, state):
    assert state_of(*items) == state


def test_calls_and_their_outputs_become_json():
    call = {"type": "function_call", "call_id": "c", "name": "f", "arguments": '{"a": [1]}', "id": "x", "status": None}
    output = {"type": "function_call_output", "call_id": "c", "output": "done"}
    custom = {"type": "custom_tool_call", "call_id": "d", "name": "g", "input": "raw"}
    custom_output = {"type": "custom_tool_call_output", "call_id": "d", "output": [{"type": "input_text", "text": "t"}]}
    assert state_of(call, output, custom, custom_output) == [
        {"type": "function_call", "call_id": "c", "name": "f", "arguments": {"a": [1]}},
        {"type": "function_call_output", "call_id": "c", "output": "done"},
        {"type": "custom_tool_call", "call_id": "d", "name": "g", "input": "raw"},
        {"type": "custom_tool_call_output", "call_id": "d", "output": "t"},
    ]
    for unread in ("{oops", '{"a": NaN}', "[" * 1000):
        assert state_of(call | {"arguments": unread})[0]["arguments"] == unread


def test_instructions_may_be_parts():
    parts = [{"type": "input_text", "text": "Is it"}, {"type": "input_json", "data": {"late": True}}]
    assert question_of(PREDICATE | {"instructions": parts})["instructions"] == ["Is it", {"late": True}]


# What is answered


def test_answers_and_usage_have_openais_shape():
    body = json.loads(OPENAI.answer(ask(questions=[PREDICATE, CHOICE, SCORE]), [0.75, 0.25, 0.75, 0.5], 7))
    assert body == {
        "model": "served",
        "answers": [
            {"type": "predicate", "name": None, "probability": 0.75},
            {
                "type": "choice",
                "name": None,
                "choice": "b",
                "confidence": 0.5,
                "probabilities": [{"value": "a", "probability": 0.25}, {"value": "b", "probability": 0.75}],
            },
            {
                "type": "score",
                "name": None,
                "score": 0.5,
                "confidence": 0.0,
                "probabilities": [
                    {"value": 0, "label": "low", "probability": 0.5},
                    {"value": 1, "label": "high", "probability": 0.5},
                ],
            },
        ],
        "usage": {
            "input_tokens": 7,
            "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
            "output_tokens": 0,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": 7,
        },
    }


# What is refused

IMAGE = {"type": "input_image", "image_url": "data:image/png;base64,AAAA"}
MANY = [{"value": str(n)} for n in range(256)]


@pytest.mark.parametrize(
    ("fields", "status", "code", "param"),
    [
        ({"model": "gpt-5"}, 404, "model_not_found", "model"),
        ({"input": 3}, 400, "text_or_list", "input"),
        ({"input": [{"role": "user", "content": [IMAGE]}]}, 400, "union_tag_invalid", "input[0].content[0]"),
        ({"input": [{"role": "robot", "content": ""}]}, 400, "literal_error", "input[0].role"),
        ({"input": [{"type": "reasoning"}]}, 400, "item_type", "input[0]"),
        ({"input": [{"type": []}]}, 400, "item_type", "input[0]"),
        ({"input": [{"role": "assistant", "content": [{"type": "refusal", "refusal": 1}]}]}, 400, "string_type", "input[0].content[0].refusal"),
        ({"input": [{"type": "function_call_output", "call_id": "c", "output": ""}]}, 400, "call_missing", "input[0].call_id"),
        ({"input": [{"role": "user", "content": [{"type": "input_json", "data": 1}]}]}, 400, "json_type", "input[0].content[0].data"),
        ({"input": "x" * 256_001}, 400, "state_too_long", "input"),
        ({"questions": []}, 400, "too_short", "questions"),
        ({"questions": [PREDICATE] * 401}, 400, "too_long", "questions"),
        ({"questions": [1]}, 400, "model_attributes_type", "questions[0]"),
        ({"questions": [PREDICATE, {"type": "noul"}]}, 400, "union_tag_invalid", "questions[1]"),
        ({"questions": [{"type": "predicate"}]}, 400, "missing", "questions[0].instructions"),
        ({"questions": [PREDICATE | {"instructions": "x" * 8001}]}, 400, "string_too_long", "questions[0].instructions"),
        ({"questions": [CHOICE | {"choices": MANY[:1]}]}, 400, "too_short", "questions[0].choices"),
        ({"questions": [CHOICE | {"choices": MANY}]}, 400, "too_long", "questions[0].choices"),
        ({"questions": [CHOICE | {"choices": [{"value": 1}, *MANY[:3]]}]}, 400, "choice_value_type", "questions[0].choices[0].value"),
        ({"questions": [CHOICE | {"choices": MANY[:1] * 2}]}, 400, "choices_not_unique", "questions[0].choices"),
        ({"questions": [CHOICE | {"choices": [{"value": True}] * 2}]}, 400, "choices_not_unique", "questions[0].choices"),
        (
            {"questions": [PREDICATE, CHOICE | {"choices": [{"value": "a"}, {"value": "b", "description": "x" * 8001}]}]},
            400,
            "string_too_long",
            "questions[1].choices[1]",
        ),
        ({"questions": [SCORE | {"levels": [{"label": "a"}, {"label": "x" * 8001}]}]}, 400, "string_too_long", "questions[0].levels[1]"),
        ({"questions": [SCORE | {"levels": [{"label": "a"}]}]}, 400, "too_short", "questions[0].levels"),
        ({"questions": [SCORE | {"levels": [{"label": "a"}] * 11}]}, 400, "too_long", "questions[0].levels"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named(fields, status, code, param):
    assert refusal_of(**fields)[:3] == (status, code, param)


def test_an_image_is_told_apart_from_a_mistake():
    said = refusal_of(input=[{"role": "user", "content": [IMAGE]}])[3]
    assert said == "This server reads text only: leave images out"
    assert "'input_text'" in refusal_of(input=[{"role": "user", "content": [{"type": "video"}]}])[3]


def test_limits_are_taken():
    ask(questions=[PREDICATE] * 400)
    ask(questions=[CHOICE | {"choices": MANY[:255]}, SCORE | {"levels": [{"label": "a"}] * 10}])


def test_the_servers_own_limits_are_led_back():
    strict = DecisionsDialect("served", Limits(choice_options=2, score_levels=2, request_questions=1))
    choice = CHOICE | {"choices": MANY[:3]}
    score = SCORE | {"levels": [{"label": "a"}] * 3}
    for questions, param in [
        ([choice], "questions[0].choices"),
        ([score], "questions[0].levels"),
        ([SCORE] * 2, "questions"),
    ]:
        with pytest.raises(errors.InvalidRequest) as caught:
            strict.validate({"input": "x", "questions": questions})
        assert json.loads(strict.refuse(caught.value).body)["error"]["param"] == param


@pytest.mark.parametrize(
    ("error", "status", "code", "kind"),
    [
        (errors.Overloaded("full", 0.25), 529, "overloaded_error", "server_error"),
        (errors.DeadlineExceeded("late"), 504, "deadline_exceeded", "server_error"),
        (errors.EngineFailed("bad"), 500, "engine_failed", "server_error"),
        (errors.BodyTooLarge("big"), 413, "body_too_large", "invalid_request_error"),
        (RuntimeError("secret"), 500, "internal_error", "server_error"),
    ],
)
def test_other_errors_keep_their_status_and_headers(error, status, code, kind):
    problem, plain = OPENAI.refuse(error), SystemOneDialect("served").refuse(error)
    body = json.loads(problem.body)["error"]
    assert (problem.status, body["code"], body["type"], body["param"]) == (status, code, kind, None)
    assert problem.headers == plain.headers
    assert ("retry-after-ms" in problem.headers) == isinstance(error, errors.Overloaded)
    assert "secret" not in body["message"]


def test_a_prompt_too_long_says_which_question():
    error = errors.PromptTooLong("long", loc=("body", "questions", "3"), kind="prompt_too_long")
    body = json.loads(OPENAI.refuse(error).body)["error"]
    assert (body["param"], body["code"]) == ("questions[3]", "context_length_exceeded")


# Which of the two forms it is


def either():
    return EitherDialect(SystemOneDialect("served"), OPENAI)


def test_questions_in_an_object_are_system_ones():
    body = b'{"state": "x", "questions": {"q": {"type": "noul"}}}'
    dialect = either()
    asked = dialect.validate(dialect.decode(body, None))
    assert dialect.answer(asked, [0.5], 1) == SystemOneDialect("served").answer(asked, [0.5], 1)


@pytest.mark.parametrize(
    "body", [b"", b"{", b"[]", b"null", b'{"questions": null}', b'{"input": "x"}', b"\xff", b"[" * 300]
)
def test_what_is_neither_is_refused_as_system_one_does(body):
    problems = []
    for dialect in (either(), SystemOneDialect("served")):
        with pytest.raises(ValidationError) as caught:
            dialect.validate(dialect.decode(body, None))
        problems.append(dialect.refuse(caught.value))
    assert problems[0] == problems[1]


def test_questions_in_a_list_are_openais():
    dialect = either()
    with pytest.raises(ValidationError) as caught:
        dialect.validate(dialect.decode(b'{"questions": []}', None))
    assert "error" in json.loads(dialect.refuse(caught.value).body)
