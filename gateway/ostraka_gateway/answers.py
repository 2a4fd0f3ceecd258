"""P(yes) of each prompt -> the answers, and the bytes of the whole body. Pure arithmetic: no model, no HTTP.

The doubles are exact: sums run left to right, and nothing is rounded.
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from functools import reduce
from itertools import islice, pairwise
from operator import add

from ostraka_gateway.schemas import Choice, Noul, Question, Score, SystemOneRequest
from ostraka_shared.errors import EngineFailed

Answer = dict[str, object]

_BODY = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def encode_response(request: SystemOneRequest, model: str, p_yes: Sequence[float], input_tokens: int) -> bytes:
    """`model`: the served name, never the alias. Raises EngineFailed where `p_yes` cannot be this request's."""
    usage = {"input_tokens": input_tokens, "output_tokens": 0}
    return _BODY.encode({"model": model, "answers": answer_request(request, p_yes), "usage": usage}).encode()


def answer_request(request: SystemOneRequest, p_yes: Sequence[float]) -> dict[str, Answer]:
    """`p_yes` in the order of the prompts: question by question."""
    dealt = deal(request, p_yes)
    return {key: _answer(question, own) for (key, question), own in zip(request.questions.items(), dealt, strict=True)}


def deal(request: SystemOneRequest, p_yes: Sequence[float]) -> list[list[float]]:
    """To each question its own. Raises EngineFailed where they cannot be this request's."""
    if len(p_yes) != request.prompt_count:
        raise EngineFailed(f"The model answered {len(p_yes)} of {request.prompt_count} prompts")
    if not all(0.0 <= p <= 1.0 for p in p_yes):  # refuses NaN too
        raise EngineFailed("The model gave a probability that is not between 0 and 1")
    remaining = iter(p_yes)
    return [list(islice(remaining, question.prompt_count)) for question in request.questions.values()]


def _answer(question: Question, p_yes: list[float]) -> Answer:
    match question:
        case Noul():
            return {"type": "noul", "noul": p_yes[0]}
        case Choice():
            names = list(question.criteria)
            best, probabilities, confidence = weigh_options(p_yes)
            return {
                "type": "choice",
                "choice": names[best],
                "probabilities": dict(zip(names, probabilities, strict=True)),
                "confidence": confidence,
            }
        case Score():
            score, probabilities, confidence = weigh_levels(p_yes)
            return {
                "type": "score",
                "score": score,
                "legend": _number_keys(question.criteria),
                "probabilities": _number_keys(probabilities),
                "confidence": confidence,
            }


def weigh_options(p_yes: Sequence[float]) -> tuple[int, list[float], float]:
    """(place of the best option, probabilities, confidence)."""
    uniform = 1.0 / len(p_yes)
    total = _sum(p_yes)
    probabilities = [p / total for p in p_yes] if total else [uniform] * len(p_yes)
    highest = max(probabilities)
    confidence = _clamp((highest - uniform) / (1.0 - uniform)) if len(p_yes) > 1 else 1.0
    return probabilities.index(highest), probabilities, confidence


def weigh_levels(p_at_least: Sequence[float]) -> tuple[float, list[float], float]:
    """(score, probabilities, confidence). `p_at_least[k]` is the probability of level k + 1 or a higher one."""
    steps = [1.0, *map(_clamp, _non_increasing(p_at_least)), 0.0]
    probabilities = [max(0.0, here - above) for here, above in pairwise(steps)]
    levels = len(probabilities)
    score = _sum(level * p for level, p in enumerate(probabilities))
    if levels == 1:
        return score, probabilities, 1.0
    mode = probabilities.index(max(probabilities))
    spread = _sum(p * abs(level - mode) for level, p in enumerate(probabilities))
    uniform_spread = _sum(abs(level - (levels - 1) / 2) for level in range(levels)) / levels
    return score, probabilities, _clamp(1.0 - spread / uniform_spread)


def _non_increasing(values: Sequence[float]) -> Iterator[float]:
    """The nearest non-increasing sequence: neighbours that rise are pooled to their mean (pool adjacent violators)."""
    pools: list[tuple[float, int]] = []  # (total, size)
    for value in values:
        total, size = value, 1
        while pools and pools[-1][0] / pools[-1][1] < total / size:
            left_total, left_size = pools.pop()
            total, size = left_total + total, left_size + size
        pools.append((total, size))
    for total, size in pools:
        yield from [total / size] * size


def _number_keys(values: Iterable[object]) -> dict[str, object]:
    return {str(place): value for place, value in enumerate(values)}


def _clamp(value: float) -> float:
    return max(0.0, min(1.0, value))


def _sum(values: Iterable[float]) -> float:
    """Left to right: from Python 3.12 on `sum` compensates, and would give other last digits."""
    return reduce(add, values, 0.0)
