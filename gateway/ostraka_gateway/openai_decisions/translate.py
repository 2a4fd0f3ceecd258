"""An OpenAI Decisions request as the System One request that asks the same, and a fault found there led back."""

from typing import NoReturn

from pydantic import ValidationError
from pydantic_core import from_json

from ostraka_gateway.limits import DEFAULT_LIMITS, Limits
from ostraka_gateway.openai_decisions.schemas import (
    ChoiceOption,
    ChoiceQuestion,
    Content,
    CustomToolCall,
    DecisionsInput,
    DecisionsQuestion,
    DecisionsRequest,
    FunctionCall,
    InputItem,
    InputMessage,
    JsonPart,
    Part,
    PredicateQuestion,
    RefusalPart,
    ScoreLevel,
    ScoreQuestion,
    TextPart,
    ToolOutput,
)
from ostraka_gateway.schemas import SystemOneRequest, Text
from ostraka_shared.errors import InvalidRequest


def to_system_one(request: DecisionsRequest, limits: Limits = DEFAULT_LIMITS) -> SystemOneRequest:
    """A question's id is its place. Raises InvalidRequest with the path in the body as it came."""
    _check_calls(request.input)
    questions = {str(place): _question(question) for place, question in enumerate(request.questions)}
    asked = {"model": request.model, "state": _state(request.input), "questions": questions}
    try:
        return SystemOneRequest.model_validate(asked, context=limits)
    except ValidationError as bad:
        _lead_back(request, bad)


def option_names(choices: list[ChoiceOption]) -> list[str]:
    """What the model reads for each value; as distinct as the values are."""
    taken = {choice.value for choice in choices if isinstance(choice.value, str)}
    return [choice.value if isinstance(choice.value, str) else _boolean_name(choice.value, taken) for choice in choices]


def _boolean_name(value: bool, taken: set[str]) -> str:  # noqa: FBT001  the value itself
    name = "true" if value else "false"
    while name in taken:
        name += " (boolean)"
    return name


def _state(given: DecisionsInput) -> Text:
    """A lone user message is the text it holds, so that it reads like a plain string. All else keeps its roles."""
    if isinstance(given, str):
        return given
    match given:
        case [InputMessage(role="user", content=content)]:
            return _text(content)
        case _:
            return [_item(item) for item in given]


def _item(item: InputItem) -> dict[str, object]:
    """As it came, less what says nothing about the matter; arguments are JSON in a string, and read better without."""
    match item:
        case InputMessage():
            return {"role": item.role, "content": _text(item.content)}
        case FunctionCall():
            arguments = _parse_arguments(item.arguments)
            return {"type": item.type, "call_id": item.call_id, "name": item.name, "arguments": arguments}
        case CustomToolCall():
            return {"type": item.type, "call_id": item.call_id, "name": item.name, "input": item.input}
        case ToolOutput():
            return {"type": item.type, "call_id": item.call_id, "output": _text(item.output)}


def _parse_arguments(text: str) -> object:
    try:
        return from_json(text, allow_inf_nan=False)
    except ValueError:
        return text  # a model wrote it: it need not be JSON


def _text(content: Content) -> Text:
    if isinstance(content, str):
        return content
    values = [_part(part) for part in content]
    if len(values) == 1:
        return values[0]
    texts = [value for value in values if isinstance(value, str)]
    return "\n".join(texts) if len(texts) == len(values) else list[object](values)


def _part(part: Part) -> Text:
    match part:
        case TextPart():
            return part.text
        case RefusalPart():
            return part.refusal
        case JsonPart():
            return part.data


def _question(question: DecisionsQuestion) -> dict[str, object]:
    instructions = _text(question.instructions)
    match question:
        case PredicateQuestion():
            return {"type": "noul", "instructions": instructions}
        case ChoiceQuestion(choices=choices):
            descriptions = [choice.description for choice in choices]
            criteria = dict(zip(option_names(choices), descriptions, strict=True))
            return {"type": "choice", "instructions": instructions, "criteria": criteria}
        case ScoreQuestion(levels=levels):
            return {"type": "score", "instructions": instructions, "criteria": [_level(level) for level in levels]}


def _level(level: ScoreLevel) -> str:
    return f"{level.label}: {level.description}" if level.description else level.label


def _check_calls(given: DecisionsInput) -> None:
    """An output whose call is missing is evidence of nobody knows what; OpenAI refuses it too."""
    if isinstance(given, str):
        return
    calls = {item.call_id for item in given if isinstance(item, FunctionCall | CustomToolCall)}
    for place, item in enumerate(given):
        if isinstance(item, ToolOutput) and item.call_id not in calls:
            raise InvalidRequest(
                "Input should have a call with this output's call_id",
                loc=("body", "input", place, "call_id"),
                kind="call_missing",
            )


def _lead_back(request: DecisionsRequest, bad: ValidationError) -> NoReturn:
    """Paths there: ("state",), or ("questions", id, type, "instructions" or "criteria", option name or level, ...)."""
    fault = bad.errors(include_url=False, include_context=False, include_input=False)[0]
    found: tuple[str | int, ...]
    match fault["loc"]:
        case ("questions", str(place), str(kind), "criteria"):
            found = ("questions", int(place), "levels" if kind == "score" else "choices")
        case ("questions", str(place), _, "criteria", int(level), *_):
            found = ("questions", int(place), "levels", level)
        case ("questions", str(place), _, "criteria", str(name), *_):
            found = ("questions", int(place), "choices", _find_option(request.questions[int(place)], name))
        case ("questions", str(place), _, "instructions", *_):
            found = ("questions", int(place), "instructions")
        case ("state", *_):
            found = ("input",)
        case (field, *_):
            found = (field,)
        case _:
            found = ()
    raise InvalidRequest(fault["msg"], loc=("body", *found), kind=fault["type"]) from None


def _find_option(question: DecisionsQuestion, name: str) -> int:
    assert isinstance(question, ChoiceQuestion)  # noqa: S101 -- for mypy: only choices have named criteria
    return option_names(question.choices).index(name)
