"""The request as clients send it, and how a wrong one is described. It knows neither prompts nor HTTP statuses.

Lenient: what is not known is ignored. Every text a client can send is checked here (its kind, its length, that it can
be written as UTF-8 JSON), so that nothing after this module has to.
"""

import json
from collections.abc import Callable, Mapping, Sized
from typing import Annotated, Literal, TypedDict, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainValidator,
    ValidationError,
    ValidationInfo,
    WithJsonSchema,
)
from pydantic_core import PydanticCustomError, PydanticKnownError

from ostraka_gateway.limits import DEFAULT_LIMITS, Limits

DEFAULT_MODEL = "jev-latest"
"""Some clients leave `model` out; the hosted API names this alias its default."""

QUESTION_ID_CHARS_MAX = 128
"""feder-cr/jev's limit."""
OPTIONS_MAX = DEFAULT_LIMITS.choice_options
LEVELS_MAX = DEFAULT_LIMITS.score_levels
"""For dialects whose own contract fixes them, whatever this server's settings."""
DETAIL_ITEMS_MAX = 100
"""A body can hold a quarter of a million wrong options; nobody reads more than this of the list."""

Text = str | dict[str, object] | list[object]
Countable = TypeVar("Countable", bound=Sized)

_JSON_ESCAPED_CHAR_BYTES = 6  # the longest a character becomes in JSON: \u0000
_CANONICAL = json.JSONEncoder(ensure_ascii=False, allow_nan=False, sort_keys=True, separators=(",", ":"))
_STATE = json.JSONEncoder(ensure_ascii=False, allow_nan=False)


def plain_text(text: Text) -> str:
    """What the model reads of a text: the string stripped, anything else as canonical JSON."""
    return text.strip() if isinstance(text, str) else _CANONICAL.encode(text)


def _require_text(value: object) -> Text:
    if isinstance(value, str | dict | list):
        return value
    raise PydanticCustomError("text_type", "Input should be a string, an object or an array")


def _require_utf8(text: str) -> str:
    """A lone surrogate is legal in a Python string, but no UTF-8 answer could hold it."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise PydanticKnownError("string_unicode") from None
    return text


def _write(writer: Callable[[Text], str], text: Text) -> str:
    try:
        written = writer(text)
    except ValueError:
        raise PydanticCustomError("finite_number", "Input should hold no NaN or Infinity: send null instead") from None
    return _require_utf8(written)


def _limits(check: ValidationInfo) -> Limits:
    return check.context or DEFAULT_LIMITS


def _check_text(value: object, check: ValidationInfo) -> Text:
    text = _require_text(value)
    if len(_write(plain_text, text)) > (most := _limits(check).text_chars):
        raise PydanticKnownError("string_too_long", {"max_length": most})
    return text


def _check_optional_text(value: object, check: ValidationInfo) -> Text | None:
    return None if value is None else _check_text(value, check)


def _check_state(value: object, check: ValidationInfo) -> Text:
    state = _require_text(value)
    most = _limits(check).state_bytes
    if isinstance(state, str) and len(state) * _JSON_ESCAPED_CHAR_BYTES + 2 <= most:
        return _require_utf8(state)
    # A text of that many characters has as many bytes: none of its 16 MB has to be written.
    if (isinstance(state, str) and len(state) + 2 > most) or len(_write(_STATE.encode, state).encode()) > most:
        raise PydanticCustomError(
            "state_too_long", "State should have at most {max_bytes} bytes as JSON", {"max_bytes": most}
        )
    return state


def _check_count(found: Countable, field_type: str, most: int) -> Countable:
    if len(found) > most:
        details = {"field_type": field_type, "max_length": most, "actual_length": len(found)}
        raise PydanticKnownError("too_long", details)
    return found


def _check_options(options: dict[str, Text | None], check: ValidationInfo) -> dict[str, Text | None]:
    return _check_count(options, "Dictionary", _limits(check).choice_options)


def _check_levels(levels: list[Text], check: ValidationInfo) -> list[Text]:
    return _check_count(levels, "List", _limits(check).score_levels)


def _check_questions(questions: "dict[str, Question]", check: ValidationInfo) -> "dict[str, Question]":
    return _check_count(questions, "Dictionary", _limits(check).request_questions)


def _check_question_id(question_id: str) -> str:
    if not question_id.strip():
        raise PydanticCustomError("question_id_blank", "A question's id should not be blank")
    if len(question_id) > QUESTION_ID_CHARS_MAX:
        raise PydanticKnownError("string_too_long", {"max_length": QUESTION_ID_CHARS_MAX})
    return _require_utf8(question_id)


def _check_option_name(name: str, check: ValidationInfo) -> str:
    _check_text(name, check)
    return name


def _refuse_assets(value: object) -> None:
    """An answer that ignored the image it was asked about would be a wrong one. An empty map asks about none."""
    if value is not None and value != {}:
        raise PydanticCustomError("assets_unsupported", "This server reads text only: leave `assets` out")


_NO_ASSETS_SCHEMA = WithJsonSchema({"anyOf": [{"type": "null"}, {"type": "object", "maxProperties": 0}]})
_TEXT_FORMS: list[dict[str, object]] = [{"type": "string"}, {"type": "object"}, {"type": "array", "items": {}}]
_TEXT_SCHEMA = WithJsonSchema({"anyOf": _TEXT_FORMS})
_OPTIONAL_TEXT_SCHEMA = WithJsonSchema({"anyOf": [*_TEXT_FORMS, {"type": "null"}]})

State = Annotated[Text, PlainValidator(_check_state), _TEXT_SCHEMA]
Level = Annotated[Text, PlainValidator(_check_text), _TEXT_SCHEMA]
OptionalText = Annotated[Text | None, PlainValidator(_check_optional_text), _OPTIONAL_TEXT_SCHEMA]
OptionName = Annotated[str, AfterValidator(_check_option_name)]
QuestionId = Annotated[str, AfterValidator(_check_question_id)]


class _Lenient(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True, hide_input_in_errors=True)


class NoulCriteria(_Lenient):
    true: OptionalText = None
    false: OptionalText = None


class Noul(_Lenient):
    """A yes/no question. `criteria` is checked, never shown to the model."""

    type: Literal["noul"]
    instructions: OptionalText = None
    criteria: NoulCriteria | None = None

    @property
    def prompt_count(self) -> int:
        return 1


class Choice(_Lenient):
    """Option name -> description, in the order that breaks ties."""

    type: Literal["choice"]
    instructions: OptionalText = None
    criteria: Annotated[dict[OptionName, OptionalText], Field(min_length=1), AfterValidator(_check_options)]

    @property
    def prompt_count(self) -> int:
        return len(self.criteria)


class Score(_Lenient):
    """Levels, lowest first. The lowest is always reached, so it is never asked about."""

    type: Literal["score"]
    instructions: OptionalText = None
    criteria: Annotated[list[Level], Field(min_length=1), AfterValidator(_check_levels)]

    @property
    def prompt_count(self) -> int:
        return len(self.criteria) - 1


Question = Noul | Choice | Score


class SystemOneRequest(_Lenient):
    state: State
    model: Annotated[str, AfterValidator(_require_utf8)] = DEFAULT_MODEL
    questions: Annotated[
        dict[QuestionId, Annotated[Question, Field(discriminator="type")]],
        Field(min_length=1),
        AfterValidator(_check_questions),
    ]
    assets: Annotated[None, BeforeValidator(_refuse_assets), _NO_ASSETS_SCHEMA] = None

    @property
    def prompt_count(self) -> int:
        return sum(question.prompt_count for question in self.questions.values())


def parse_request(body: bytes, limits: Limits = DEFAULT_LIMITS) -> SystemOneRequest:
    """Raises pydantic's ValidationError, of syntax errors too. Nesting deeper than 200 is a syntax error."""
    return SystemOneRequest.model_validate_json(body, context=limits)


class DetailItem(TypedDict):
    loc: list[str | int]
    msg: str
    type: str


def validation_detail(error: ValidationError) -> list[DetailItem]:
    """The 422 body's list. No `input`: it may be huge, and it is the client's own."""
    found = error.errors(include_url=False, include_context=False, include_input=False)
    return [_detail_item(item) for item in found[:DETAIL_ITEMS_MAX]]


def _detail_item(item: Mapping[str, object]) -> DetailItem:
    kind, loc = str(item["type"]), item["loc"]
    # pydantic's own sentence would echo the tag, however long.
    msg = "Input should have a `type` of 'noul', 'choice' or 'score'" if kind == "union_tag_invalid" else item["msg"]
    assert isinstance(loc, tuple)  # noqa: S101 -- for mypy: pydantic types its errors loosely
    return {"loc": ["body", *_path(loc)], "msg": str(msg), "type": kind}


def _path(loc: tuple[str | int, ...]) -> list[str | int]:
    """The path in the body. Of pydantic's own it drops the union's tag after a question's id, and the mark of a key:
    ("questions", id, tag, "criteria", name, "[key]")."""
    if loc and loc[-1] == "[key]" and len(loc) in {3, 6}:
        loc = loc[:-1]
    if loc and loc[0] == "questions":
        loc = loc[:2] + loc[3:]
    return [step if isinstance(step, int) else step[:QUESTION_ID_CHARS_MAX] for step in loc]
