import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from ostraka_gateway import schemas
from ostraka_gateway.limits import DEFAULT_LIMITS
from ostraka_gateway.schemas import Choice, Noul, Score, SystemOneRequest, parse_request, validation_detail

NOUL = {"type": "noul", "instructions": "Is it late?"}
TEXTS = ["words", "", " \n", {"a": [1, {"b": None}]}, {}, ["x", 2.5], []]
NO_TEXT = ("Input should be a string, an object or an array", "text_type")
TOO_LONG = ("String should have at most 8000 characters", "string_too_long")
NOT_FINITE = ("Input should hold no NaN or Infinity: send null instead", "finite_number")
NOT_UNICODE = ("Input should be a valid string, unable to parse raw data as a unicode string", "string_unicode")
NOT_OBJECT = "Input should be an object"
WRONG_TAG = ("Input should have a `type` of 'noul', 'choice' or 'score'", "union_tag_invalid")


def parse(**fields):
    return parse_request(json.dumps({"state": "s", "questions": {"q": NOUL}} | fields).encode())


def parse_question(**question):
    return parse(questions={"q": question}).questions["q"]


def refusal(body):
    """Of bytes as they came, or of Python objects, which can hold what JSON bytes cannot."""
    with pytest.raises(ValidationError) as caught:
        parse_request(body) if isinstance(body, bytes) else SystemOneRequest.model_validate(body)
    return [(tuple(item["loc"]), item["msg"], item["type"]) for item in validation_detail(caught.value)]


def refusal_of(**fields):
    return refusal(json.dumps({"state": "s", "questions": {"q": NOUL}} | fields).encode())


def refusal_of_question(**question):
    return refusal_of(questions={"q": question})


# What is accepted


def test_model_defaults_to_the_latest():
    assert parse().model == "jev-latest"
    assert parse(model="jev-1.13").model == "jev-1.13"


def test_unknown_fields_are_ignored_everywhere():
    request = parse(x_trace_id="t", seed=3, questions={"q": NOUL | {"x": 1, "criteria": {"true": "a", "maybe": 3}}})
    assert request.questions["q"].criteria.true == "a"


@pytest.mark.parametrize("state", TEXTS)
def test_any_text_is_a_state_an_empty_one_too(state):
    assert parse(state=state).state == state


@pytest.mark.parametrize("text", [*TEXTS, None])
@pytest.mark.parametrize(
    ("kind", "criteria"), [("noul", None), ("choice", {"a": None, "b": "x"}), ("score", ["lo", "hi"])]
)
def test_instructions_are_any_text_or_null(kind, criteria, text):
    assert parse_question(type=kind, criteria=criteria, instructions=text).instructions == text


@pytest.mark.parametrize("text", [*TEXTS, None])
def test_criteria_are_any_text(text):
    assert parse_question(type="choice", criteria={"a": text}) == Choice(type="choice", criteria={"a": text})
    assert parse_question(type="noul", criteria={"true": text}).criteria.true == text
    assert parse_question(type="noul", criteria={"false": text}).criteria.false == text
    if text is not None:
        assert parse_question(type="score", criteria=[text]) == Score(type="score", criteria=[text])


def test_noul_criteria_may_be_absent_null_or_empty():
    assert parse_question(type="noul") == parse_question(type="noul", criteria=None) == Noul(type="noul")
    assert parse_question(type="noul", criteria={}).criteria.true is None


@pytest.mark.parametrize("count", [1, 2, 26, 255])
def test_choice_takes_1_to_255_options(count):
    question = parse_question(type="choice", criteria={f"o{i}": None for i in range(count)})
    assert question.prompt_count == len(question.criteria) == count


@pytest.mark.parametrize("count", [1, 2, 10])
def test_score_takes_1_to_10_levels_which_may_repeat(count):
    question = parse_question(type="score", criteria=["same"] * count)
    assert question.prompt_count == count - 1


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"])), min_size=1, max_size=8, unique=True))
def test_option_names_and_their_order_are_kept_byte_for_byte(names):
    question = parse_question(type="choice", criteria=dict.fromkeys(names))
    assert list(question.criteria) == names


@pytest.mark.parametrize("question_id", ["ticket-1", "q.2", "with space", "질문", "🦉", " padded ", "i" * 128, "[key]"])
def test_question_ids_are_kept(question_id):
    assert list(parse(questions={question_id: NOUL}).questions) == [question_id]


def test_questions_keep_their_order_and_count_their_prompts():
    questions = {
        "z": NOUL,
        "c": {"type": "choice", "criteria": {"a": None, "b": None}},
        "a": {"type": "score", "criteria": ["1", "2", "3"]},
    }
    request = parse(questions=questions)
    assert list(request.questions) == ["z", "c", "a"]
    assert request.prompt_count == 1 + 2 + 2


def test_limits_are_reached_but_not_passed():
    parse(state="x" * (DEFAULT_LIMITS.state_bytes - 2))
    parse(questions={f"q{i}": NOUL for i in range(DEFAULT_LIMITS.request_questions)})
    parse_question(type="noul", instructions="  " + "é" * DEFAULT_LIMITS.text_chars + "\n")


@pytest.mark.parametrize("assets", [None, {}])
def test_no_assets_are_as_good_as_none(assets):
    parse(assets=assets)


@given(
    st.recursive(
        st.none()
        | st.booleans()
        | st.integers()
        | st.floats(allow_nan=False, allow_infinity=False)
        | st.text(st.characters(exclude_categories=["Cs"])),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), inner, max_size=3)
        ),
        max_leaves=8,
    )
)
def test_a_structured_state_arrives_as_it_was_sent(value):
    assert json.dumps(parse(state=[value]).state) == json.dumps([value])


# What is refused


@pytest.mark.parametrize("state", [None, 3, True, 1.5])
def test_a_state_is_a_text(state):
    assert refusal_of(state=state) == [(("body", "state"), *NO_TEXT)]


def test_absent_fields_are_all_told_at_once():
    missing = ("Field required", "missing")
    assert refusal(b"{}") == [(("body", "state"), *missing), (("body", "questions"), *missing)]


@pytest.mark.parametrize(("body", "kind"), [(b"[]", "model_type"), (b"null", "model_type"), (b'"x"', "model_type")])
def test_the_body_is_an_object(body, kind):
    assert refusal(body) == [(("body",), NOT_OBJECT, kind)]


@pytest.mark.parametrize(
    "body", [b"", b"{", b'{"state":1,}', b"\xff", b'{"state":"\\ud800"}', b"[" * 5000 + b"]" * 5000, b"1" * 5000]
)
def test_what_is_not_json_is_told_apart(body):
    ((loc, msg, kind),) = refusal(body)
    assert (loc, kind) == (("body",), "json_invalid")
    assert msg.startswith("Invalid JSON: ")


@pytest.mark.parametrize("model", [None, 3, ["jev-latest"]])
def test_a_model_is_a_string(model):
    assert refusal_of(model=model) == [(("body", "model"), "Input should be a valid string", "string_type")]


@pytest.mark.parametrize("questions", [[], "q", None])
def test_questions_are_an_object(questions):
    assert refusal_of(questions=questions) == [(("body", "questions"), NOT_OBJECT, "dict_type")]


def test_one_question_at_least_and_1024_at_most():
    ((loc, msg, kind),) = refusal_of(questions={})
    assert (loc, kind) == (("body", "questions"), "too_short")
    assert msg == "Dictionary should have at least 1 item after validation, not 0"
    ((loc, msg, kind),) = refusal_of(questions={f"q{i}": NOUL for i in range(1025)})
    assert (loc, kind) == (("body", "questions"), "too_long")
    assert msg.startswith("Dictionary should have at most 1024 items")


@pytest.mark.parametrize(
    ("question_id", "msg", "kind"),
    [
        ("", "A question's id should not be blank", "question_id_blank"),
        (" \u2003\n", "A question's id should not be blank", "question_id_blank"),
        ("i" * 129, "String should have at most 128 characters", "string_too_long"),
    ],
)
def test_question_ids_are_bounded(question_id, msg, kind):
    assert refusal_of(questions={question_id: NOUL}) == [(("body", "questions", question_id[:128]), msg, kind)]


@pytest.mark.parametrize(
    ("question", "msg", "kind"),
    [
        (3, NOT_OBJECT, "dict_type"),
        ({}, "Unable to extract tag using discriminator 'type'", "union_tag_not_found"),
        ({"type": "boolean"}, *WRONG_TAG),
        ({"type": "box" * 10_000}, *WRONG_TAG),
    ],
)
def test_a_question_has_one_of_three_types(question, msg, kind):
    assert refusal_of(questions={"q": question}) == [(("body", "questions", "q"), msg, kind)]


@pytest.mark.parametrize("text", [3, False, 1.5])
def test_a_text_is_a_string_an_object_or_an_array(text):
    at = ("body", "questions", "q")
    criteria = (*at, "criteria")
    assert refusal_of_question(type="noul", instructions=text) == [((*at, "instructions"), *NO_TEXT)]
    assert refusal_of_question(type="noul", criteria={"true": text}) == [((*criteria, "true"), *NO_TEXT)]
    assert refusal_of_question(type="noul", criteria={"false": text}) == [((*criteria, "false"), *NO_TEXT)]
    assert refusal_of_question(type="choice", criteria={"a": None, "b": text}) == [((*criteria, "b"), *NO_TEXT)]
    assert refusal_of_question(type="score", criteria=["a", text]) == [((*criteria, 1), *NO_TEXT)]


def test_a_level_is_not_null():
    assert refusal_of_question(type="score", criteria=["a", None]) == [
        (("body", "questions", "q", "criteria", 1), *NO_TEXT)
    ]


@pytest.mark.parametrize(
    ("kind", "criteria", "msg", "error"),
    [
        ("noul", "late", NOT_OBJECT, "model_type"),
        ("choice", ["a"], NOT_OBJECT, "dict_type"),
        ("choice", None, NOT_OBJECT, "dict_type"),
        ("choice", {}, "Dictionary should have at least 1 item after validation, not 0", "too_short"),
        ("score", {"0": "a"}, "Input should be a valid array", "list_type"),
        ("score", None, "Input should be a valid array", "list_type"),
        ("score", [], "List should have at least 1 item after validation, not 0", "too_short"),
        ("score", ["a"] * 11, "List should have at most 10 items after validation, not 11", "too_long"),
    ],
)
def test_criteria_have_their_question_s_form(kind, criteria, msg, error):
    assert refusal_of_question(type=kind, criteria=criteria) == [(("body", "questions", "q", "criteria"), msg, error)]


def test_256_options_are_too_many():
    ((loc, msg, kind),) = refusal_of_question(type="choice", criteria={f"o{i}": None for i in range(256)})
    assert (loc, kind) == (("body", "questions", "q", "criteria"), "too_long")
    assert msg.startswith("Dictionary should have at most 255 items")


@pytest.mark.parametrize("kind", ["choice", "score"])
def test_choice_and_score_need_criteria(kind):
    assert refusal_of_question(type=kind) == [(("body", "questions", "q", "criteria"), "Field required", "missing")]


@pytest.mark.parametrize("text", ["x" * 8001, ["x" * 7997]])
def test_a_text_has_8000_characters_at_most(text):
    at = ("body", "questions", "q")
    assert refusal_of_question(type="noul", instructions=text) == [((*at, "instructions"), *TOO_LONG)]
    assert refusal_of_question(type="score", criteria=[text]) == [((*at, "criteria", 0), *TOO_LONG)]


def test_an_option_s_name_is_a_text_too_and_a_location_never_longer_than_an_id():
    name = "n" * 8001
    assert refusal_of_question(type="choice", criteria={name: None}) == [
        (("body", "questions", "q", "criteria", name[:128]), *TOO_LONG)
    ]


@pytest.mark.parametrize("state", ["x" * 255_999, "é" * 128_000, "\x00" * 42_667, ["x" * 255_997]])
def test_a_state_has_256000_bytes_of_json_at_most(state):
    expected = (("body", "state"), "State should have at most 256000 bytes as JSON", "state_too_long")
    assert refusal_of(state=state) == [expected]


@pytest.mark.parametrize("number", [b"NaN", b"Infinity", b"-Infinity", b"1e400"])
def test_numbers_are_finite(number):
    body = b'{"state":[%s],"questions":{"q":{"type":"score","criteria":[{"x":%s}]}}}' % (number, number)
    assert refusal(body) == [
        (("body", "state"), *NOT_FINITE),
        (("body", "questions", "q", "criteria", 0), *NOT_FINITE),
    ]


def test_lone_surrogates_are_refused_wherever_they_are():
    questions = {
        "a\ud800": NOUL,
        "b": {"type": "choice", "criteria": {"x\ud800": None, "y": ["\ud800"]}},
        "c": {"type": "score", "criteria": ["\udfff"]},
    }
    detail = refusal({"state": {"\ud800": 1}, "model": "\ud800", "questions": questions})
    assert [(msg, kind) for _, msg, kind in detail] == [NOT_UNICODE] * 6
    assert [loc[1] for loc, _, _ in detail] == ["state", "model", *["questions"] * 4]
    json.dumps([loc for loc, _, _ in detail], ensure_ascii=False).encode()


def test_images_are_refused_rather_than_ignored():
    expected = (("body", "assets"), "This server reads text only: leave `assets` out", "assets_unsupported")
    for assets in ({"a": {"type": "image"}}, [], "", 0, False):
        assert refusal_of(assets=assets) == [expected]


def test_an_option_named_like_pydantic_s_key_mark_keeps_its_place():
    assert refusal_of_question(type="choice", criteria={"[key]": 3}) == [
        (("body", "questions", "q", "criteria", "[key]"), *NO_TEXT)
    ]


def test_the_detail_echoes_no_input_and_ends_at_100_items():
    echo = "sesame"
    detail = refusal_of(state=3, questions={f"q{i}": {"type": echo} for i in range(500)})
    assert len(detail) == schemas.DETAIL_ITEMS_MAX
    assert echo not in json.dumps(detail)


def test_the_published_schema_says_what_a_text_may_be():
    forms = SystemOneRequest.model_json_schema()["properties"]["state"]["anyOf"]
    assert [form["type"] for form in forms] == ["string", "object", "array"]
