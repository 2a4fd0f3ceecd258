"""OpenAI's Decisions request, and how a wrong one is described. The texts in it are checked once they are translated.

Lenient: what is not known is ignored (cache options, message ids), but for a kind of content that would go unread.
"""

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Discriminator,
    Field,
    PlainValidator,
    Tag,
    ValidationError,
    WithJsonSchema,
)
from pydantic_core import PydanticCustomError

from ostraka_gateway.schemas import DEFAULT_MODEL, LEVELS_MAX, OPTIONS_MAX

QUESTIONS_MAX = 400
"""OpenAI's limit."""

JsonContainer = dict[str, object] | list[object]


def _check_container(value: object) -> JsonContainer:
    if isinstance(value, dict | list):
        return value
    raise PydanticCustomError("json_type", "Input should be an object or an array")


def _check_choice_value(value: object) -> str | bool:
    if isinstance(value, str | bool):
        return value
    raise PydanticCustomError("choice_value_type", "Input should be a string or a boolean")


class _Lenient(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True, hide_input_in_errors=True)


class TextPart(_Lenient):
    type: Literal["input_text", "output_text"]
    text: str


class RefusalPart(_Lenient):
    type: Literal["refusal"]
    refusal: str


class JsonPart(_Lenient):
    type: Literal["input_json"]
    data: Annotated[
        JsonContainer,
        PlainValidator(_check_container),
        WithJsonSchema({"anyOf": [{"type": "object"}, {"type": "array", "items": {}}]}),
    ]


# Tags of unions that no field tells apart begin with "<", so that `_path` knows them from fields.
def _text_or_list(value: object) -> str | None:
    return "<text>" if isinstance(value, str) else "<list>" if isinstance(value, list) else None


def _item_kind(value: object) -> str | None:
    kind = value.get("type", "message") if isinstance(value, dict) else None
    if not isinstance(kind, str):
        return None
    return "tool_output" if kind.endswith("_call_output") else kind


_TEXT_OR_LIST = Discriminator(
    _text_or_list, custom_error_type="text_or_list", custom_error_message="Input should be a string or an array"
)

Part = Annotated[TextPart | RefusalPart | JsonPart, Field(discriminator="type")]
Content = Annotated[Annotated[str, Tag("<text>")] | Annotated[list[Part], Tag("<list>")], _TEXT_OR_LIST]


class InputMessage(_Lenient):
    type: Literal["message"] = "message"
    role: Literal["user", "developer", "system", "assistant"]
    content: Content


class FunctionCall(_Lenient):
    type: Literal["function_call"]
    call_id: str
    name: str
    arguments: str


class CustomToolCall(_Lenient):
    type: Literal["custom_tool_call"]
    call_id: str
    name: str
    input: str


class ToolOutput(_Lenient):
    type: Literal["function_call_output", "custom_tool_call_output"]
    call_id: str
    output: Content


InputItem = Annotated[
    Annotated[InputMessage, Tag("message")]
    | Annotated[FunctionCall, Tag("function_call")]
    | Annotated[CustomToolCall, Tag("custom_tool_call")]
    | Annotated[ToolOutput, Tag("tool_output")],
    Discriminator(
        _item_kind,
        custom_error_type="item_type",
        custom_error_message="Input should be a message, a function or custom tool call, or the output of one",
    ),
]
DecisionsInput = Annotated[Annotated[str, Tag("<text>")] | Annotated[list[InputItem], Tag("<list>")], _TEXT_OR_LIST]


class PredicateQuestion(_Lenient):
    type: Literal["predicate"]
    name: str | None = None
    instructions: Content


class ChoiceOption(_Lenient):
    value: Annotated[
        str | bool,
        PlainValidator(_check_choice_value),
        WithJsonSchema({"anyOf": [{"type": "string"}, {"type": "boolean"}]}),
    ]
    description: str | None = None


def _require_unique(choices: list[ChoiceOption]) -> list[ChoiceOption]:
    if len({choice.value for choice in choices}) < len(choices):
        raise PydanticCustomError("choices_not_unique", "Each choice should have a value of its own")
    return choices


class ChoiceQuestion(_Lenient):
    """Values are typed: the text "true" and the boolean are two choices."""

    type: Literal["choice"]
    name: str | None = None
    instructions: Content
    choices: Annotated[list[ChoiceOption], Field(min_length=2, max_length=OPTIONS_MAX), AfterValidator(_require_unique)]


class ScoreLevel(_Lenient):
    label: str
    description: str | None = None


class ScoreQuestion(_Lenient):
    """Levels, lowest first."""

    type: Literal["score"]
    name: str | None = None
    instructions: Content
    levels: list[ScoreLevel] = Field(min_length=2, max_length=LEVELS_MAX)


DecisionsQuestion = PredicateQuestion | ChoiceQuestion | ScoreQuestion


class DecisionsRequest(_Lenient):
    """Answers come in the order of the questions; names are only repeated, and may be."""

    model: str = DEFAULT_MODEL
    input: DecisionsInput
    questions: list[Annotated[DecisionsQuestion, Field(discriminator="type")]] = Field(
        min_length=1, max_length=QUESTIONS_MAX
    )


_TAGS = frozenset(
    {"input_text", "output_text", "refusal", "input_json", "message", "function_call", "custom_tool_call"}
    | {"tool_output", "predicate", "choice", "score"}
)
_OBJECT = "Input should be an object"
_MESSAGES = {"model_type": _OBJECT, "model_attributes_type": _OBJECT, "list_type": "Input should be an array"}


def first_fault(error: ValidationError) -> tuple[tuple[str | int, ...], str, str]:
    """(path in the body, message, kind): OpenAI's error body has room for one."""
    item = error.errors(include_url=False, include_input=False)[0]
    kind = item["type"]
    message = _tag_message(item.get("ctx", {})) if kind == "union_tag_invalid" else _MESSAGES.get(kind, item["msg"])
    return _path(item["loc"]), message, kind


def _tag_message(context: Mapping[str, object]) -> str:
    """Its own sentence would echo the tag, however long."""
    if context["tag"] == "input_image":
        return "This server reads text only: leave images out"
    return f"Input should have a `type` of {context['expected_tags']}"


def _path(loc: tuple[str | int, ...]) -> tuple[str | int, ...]:
    steps = [step for step in loc if isinstance(step, int) or not step.startswith("<")]
    # A tag always follows an index, and a field named like one (a part's own `refusal`) follows its tag.
    return tuple(
        step for place, step in enumerate(steps) if not (step in _TAGS and place and isinstance(steps[place - 1], int))
    )
