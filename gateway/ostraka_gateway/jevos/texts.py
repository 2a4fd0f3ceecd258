"""What the model would read of a request: its size, its characters and its numbers, once its form is right.

The checks run in jev's order, and each step reports only its own errors.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ostraka_gateway.jevos.items import ITEMS_MAX, Item, Refusal, app_item, too_many_items
from ostraka_gateway.jevos.json_text import write_json
from ostraka_gateway.jevos.structured import Loc
from ostraka_gateway.jevos.wire import Choice, Noul, Question, Request, Score
from ostraka_gateway.limits import Limits
from ostraka_gateway.schemas import QUESTION_ID_CHARS_MAX, Text

_NOT_UNICODE = "Input should be a valid string, unable to parse raw data as a unicode string"


@dataclass(frozen=True, slots=True)
class Reading:
    """The texts of one question, each at its place below `loc`."""

    loc: Loc
    texts: tuple[tuple[Loc, str], ...]
    must_differ: bool


def check_texts(request: Request, limits: Limits) -> None:
    """Raises Refusal. Of the limits it is told, the defaults are jev's."""
    readings = [_read(question_id, question) for question_id, question in request.questions.items()]
    _refuse_any([item for reading in readings for item in _text_items(reading, limits.text_chars)])
    _check_question_count(len(request.questions), limits.request_questions)
    _check_state(request.state, limits.state_bytes)
    _check_question_ids(request.questions)


def _read(question_id: str, question: Question) -> Reading:
    loc = ("body", "questions", question_id, "boolean" if isinstance(question, Noul) else question.type)
    try:
        return Reading(loc, tuple(_texts(question)), isinstance(question, Score))
    except ValueError as bad:
        raise Refusal([app_item(str(bad))]) from None


def _texts(question: Question) -> Iterator[tuple[Loc, str]]:
    if instructions := _write(question.instructions or ""):  # an empty one is replaced by the default question
        yield ("instructions",), instructions
    match question:
        case Noul(criteria=criteria) if criteria:
            for word, text, name in (("Yes", criteria.true, "true"), ("No", criteria.false, "false")):
                if text not in (None, ""):
                    yield (f"{name}_description",), f"{word}. {_write(text)}"
        case Choice(criteria=options):
            for place, (name, text) in enumerate(options.items()):
                yield ("options", place, "description"), name if text in (None, "") else f"{name}: {_write(text)}"
        case Score(criteria=levels):
            for place, text in enumerate(levels):
                yield ("levels", place), _write(text)


def _write(text: Text) -> str:
    """As `schemas.plain_text`, but a number JSON cannot hold is named."""
    return text.strip() if isinstance(text, str) else write_json(text, sort_keys=True, compact=True)


def _text_items(reading: Reading, most: int) -> Iterator[Item]:
    is_fine = True
    for place, text in reading.texts:
        if wrong := _text_error(text.strip(), most):
            is_fine = False
            kind, message = wrong
            yield app_item(message, (*reading.loc, *place), kind)
    if is_fine and reading.must_differ and _has_twins([text for place, text in reading.texts if place[0] == "levels"]):
        yield app_item("each level should read differently from every other", reading.loc)


def _text_error(text: str, most: int) -> tuple[str, str] | None:
    if not _is_unicode(text):
        return "string_unicode", _NOT_UNICODE
    if not text:
        return "string_too_short", "String should have at least 1 character"
    if len(text) > most:
        return "string_too_long", f"String should have at most {most} characters"
    return None


def _has_twins(texts: list[str]) -> bool:
    return len(set(texts)) < len(texts)


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _check_question_count(count: int, most: int) -> None:
    if count > most:
        message = f"Dictionary should have at most {most} items after validation, not {count}"
        raise Refusal([app_item(message, ("body", "questions"), "too_long")])


def _check_state(state: Text, most: int) -> None:
    if not (state.strip() if isinstance(state, str) else state):
        raise Refusal([app_item("the state is empty: there is nothing to decide on")])
    try:
        size = len(write_json(state).encode())
    except ValueError as bad:  # UnicodeEncodeError too
        raise Refusal([app_item(f"Value error, {bad}")]) from None
    if size > most:
        raise Refusal([app_item(f"the state takes {size} bytes as JSON; at most {most} are read")])


def _check_question_ids(questions: Mapping[str, Any]) -> None:
    for question_id in questions:
        if not question_id.strip() or len(question_id) > QUESTION_ID_CHARS_MAX:
            message = f"a question's id has 1 to {QUESTION_ID_CHARS_MAX} characters, and not only spaces"
            raise Refusal([app_item(message)])
        if not _is_unicode(question_id):  # jev accepts it, and its answer is then not UTF-8
            raise Refusal([app_item("a question's id should be valid Unicode: the answer is written with it")])


def _refuse_any(items: list[Item]) -> None:
    if len(items) > ITEMS_MAX:
        raise too_many_items()
    if items:
        raise Refusal(items)
