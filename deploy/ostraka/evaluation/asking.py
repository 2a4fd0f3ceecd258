"""Examples asked of an answerer: the probabilities of each, or why there are none."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ostraka.answerers import Answerer, Outcome
from ostraka.evaluation.examples import QUESTION_ID, Example, Prediction
from ostraka_shared.errors import ConfigError

REASON_CHARS = 200


@dataclass(frozen=True, slots=True)
class Refusal:
    """`reason` in the words of the server or model."""

    example: Example
    reason: str


def ask(
    answerer: Answerer, examples: Sequence[Example], tick: Callable[[], object] = lambda: None
) -> list[Prediction | Refusal]:
    """In order; `tick` after each. Raises ConfigError where the first finds no server: each would wait as long."""
    told: list[Prediction | Refusal] = []
    for example, outcome in zip(examples, answerer.answer(one.body() for one in examples), strict=True):
        told.append(read_outcome(example, outcome))
        if len(told) == 1 and _is_unreachable(outcome):
            raise ConfigError(_reason(outcome.body))
        tick()
    return told


def read_outcome(example: Example, outcome: Outcome) -> Prediction | Refusal:
    if not outcome.is_answer:
        return Refusal(example, _reason(outcome.body))
    try:
        answer = json.loads(outcome.body)["answers"][QUESTION_ID]
        probabilities = _probabilities(example, answer)
    except (ValueError, KeyError, TypeError):
        return Refusal(example, f"not an answer to it: {_shorten(outcome.body)}")
    if not all(0.0 <= one <= 1.0 for one in probabilities):
        return Refusal(example, f"not probabilities: {_shorten(outcome.body)}")
    return Prediction(example, probabilities)


def _is_unreachable(outcome: Outcome) -> bool:
    return not outcome.is_answer and b'"error_type": "unreachable"' in outcome.body


def _probabilities(example: Example, answer: dict[str, object]) -> tuple[float, ...]:
    if example.form == "noul":
        p_yes = float(answer["noul"])  # type: ignore[arg-type]
        return 1.0 - p_yes, p_yes
    names = example.options if example.form == "choice" else map(str, range(example.size))
    told = answer["probabilities"]
    return tuple(float(told[name]) for name in names)  # type: ignore[index]


def _reason(body: bytes) -> str:
    """The message alone where the body has the server's form."""
    try:
        detail = json.loads(body)["detail"]
        if isinstance(detail, list):
            return "; ".join(str(one["msg"]) for one in detail)
        return str(detail["message"]) if isinstance(detail, dict) else str(detail)
    except (ValueError, KeyError, TypeError):
        return _shorten(body)


def _shorten(body: bytes) -> str:
    text = body.decode(errors="replace")
    return text if len(text) <= REASON_CHARS else f"{text[:REASON_CHARS]}..."
