"""A request's exact prompts. It knows neither tokens nor workers nor HTTP, and trusts what `schemas` checked.

A prompt is its state's opening, then its question's body, then its own ending. Each begins a line, with a letter, and
that is where `tokenization` cuts them.
"""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass

from ostraka_gateway.schemas import Choice, Noul, OptionalText, Question, Score, SystemOneRequest, Text, plain_text
from ostraka_shared.model_folder import PromptContract

_CLOSING_TAG = re.compile("</evidence>", re.IGNORECASE | re.ASCII)
_DEFAULT_INSTRUCTIONS = {
    "noul": "Does the evidence support a yes?",
    "choice": "Which option fits the evidence best?",
    "score": "Which level fits the evidence best?",
}


@dataclass(frozen=True, slots=True)
class QuestionPrompts:
    """One prompt for each ending: the opening, `body`, the ending. The body is empty where there is but one ending."""

    question_id: str
    body: str
    endings: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RenderedRequest:
    """`state`: BOS and state, with which every prompt begins."""

    state: str
    questions: tuple[QuestionPrompts, ...]

    @property
    def opening(self) -> str:
        """The state and the empty line after it."""
        return f"{self.state}\n\n"

    @property
    def prompt_count(self) -> int:
        return sum(len(question.endings) for question in self.questions)

    @property
    def chars(self) -> int:
        """What is to be read, the state once and the rest of each prompt, told without making the prompts."""
        rests = sum(len(q.body) * len(q.endings) + sum(map(len, q.endings)) for q in self.questions)
        return len(self.opening) + rests

    def first(self) -> "RenderedRequest":
        """Its first prompt alone."""
        question = next(question for question in self.questions if question.endings)
        alone = QuestionPrompts(question.question_id, question.body, question.endings[:1])
        return RenderedRequest(self.state, (alone,))

    def prompts(self) -> Iterator[tuple[str, str]]:
        """(question id, whole prompt), question by question."""
        for question in self.questions:
            start = self.opening + question.body
            for ending in question.endings:
                yield question.question_id, start + ending


def render(request: SystemOneRequest, contract: PromptContract) -> RenderedRequest:
    state = f"{contract.bos}<evidence>\n{_state_text(request.state)}\n</evidence>"
    questions = [_render_question(question_id, question) for question_id, question in request.questions.items()]
    return RenderedRequest(state, tuple(questions))


def indented_chars(state: dict[str, object] | list[object]) -> int:
    """Of such a state as the prompt has it, told without writing it: a line for each value, as far in as it is deep."""
    chars = len(json.dumps(state, ensure_ascii=False, separators=(",", ": ")))
    level: list[dict[str, object] | list[object]] = [state]
    depth = 0
    while level:
        depth += 1
        filled = [container for container in level if container]
        chars += sum(len(container) * (1 + depth) + depth for container in filled)
        held = (each.values() if isinstance(each, dict) else each for each in filled)
        level = [value for values in held for value in values if isinstance(value, dict | list)]
    return chars


def _state_text(state: Text) -> str:
    if not isinstance(state, str):
        return json.dumps(state, ensure_ascii=False, indent=1)
    if _CLOSING_TAG.search(state):
        return json.dumps(state, ensure_ascii=False)
    return state.strip()


def _render_question(question_id: str, question: Question) -> QuestionPrompts:
    instructions = f"Question: {_instructions(question)}"
    match question:
        case Noul():
            return QuestionPrompts(question_id, "", (f"{instructions}\nAnswer:",))
        case Choice():
            options = [_describe(name, text) for name, text in question.criteria.items()]
            listed = "".join(f"\n- {option}" for option in options)
            body = f"{instructions}\nCandidates:{listed}\nAmong the candidates, is it this one?\n"
            asked = [f"Candidate: {option}" for option in options]
        case Score():
            levels = [plain_text(level) for level in question.criteria]
            scale = " < ".join(levels)
            body = (
                f"{instructions}\nScale from lowest to highest: {scale}\n"
                "Is the answer at the following level or higher?\n"
            )
            asked = [f"Level: {level}" for level in levels[1:]]
    return QuestionPrompts(question_id, body, tuple(f"{text}\nAnswer:" for text in asked))


def _instructions(question: Question) -> str:
    written = plain_text(question.instructions) if question.instructions else ""
    return written or _DEFAULT_INSTRUCTIONS[question.type]


def _describe(name: str, text: OptionalText) -> str:
    """The option's name stays as sent. Only an absent text leaves the name alone: a blank or an empty one shows."""
    return name if text is None or text == "" else f"{name}: {plain_text(text)}"
