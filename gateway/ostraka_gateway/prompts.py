"""A request's exact prompts, and their tokens. It knows neither workers nor HTTP, and trusts what `schemas` checked.

A prompt is its state's opening, then its question's body, then its own ending. Only `tokenize` joins the three, a few
prompts at a time: a body of two megabytes can ask for a quarter of a million prompts over the same long state.
"""

import itertools
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from tokenizers import Tokenizer

from ostraka_gateway.schemas import Choice, Noul, OptionalText, Question, Score, SystemOneRequest, Text, plain_text
from ostraka_shared.errors import PromptTooLong
from ostraka_shared.messages import TOKEN_BYTES
from ostraka_shared.model_folder import PromptContract

BATCH_CHARS = 1 << 18
"""Text tokenized at once. It bounds the tokenizer's own records, some 100 bytes a token."""

LEAST_SHARED_TOKENS = 8
"""As the workers have it: they read a shorter run again for each prompt."""

_TOKEN = np.dtype("<u4")
_CLOSING_TAG = re.compile("</evidence>", re.IGNORECASE | re.ASCII)
_DEFAULT_INSTRUCTIONS = {
    "noul": "Does the evidence support a yes?",
    "choice": "Which option fits the evidence best?",
    "score": "Which level fits the evidence best?",
}


@dataclass(frozen=True, slots=True)
class QuestionPrompts:
    """One prompt for each ending: the opening, `body`, the ending."""

    question_id: str
    body: str
    endings: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RenderedRequest:
    """`opening`: BOS and state, with which every prompt begins."""

    opening: str
    questions: tuple[QuestionPrompts, ...]

    @property
    def prompt_count(self) -> int:
        return sum(len(question.endings) for question in self.questions)

    @property
    def chars(self) -> int:
        """The length of all prompts together, told without making them: what tokenizing them will cost."""
        bodies = sum(len(q.body) * len(q.endings) + sum(map(len, q.endings)) for q in self.questions)
        return len(self.opening) * self.prompt_count + bodies

    def first(self) -> "RenderedRequest":
        """Its first prompt alone."""
        question = next(question for question in self.questions if question.endings)
        alone = QuestionPrompts(question.question_id, question.body, question.endings[:1])
        return RenderedRequest(self.opening, (alone,))

    def prompts(self) -> Iterator[tuple[str, str]]:
        """(question id, whole prompt), question by question."""
        for question in self.questions:
            start = self.opening + question.body
            for ending in question.endings:
                yield question.question_id, start + ending


@dataclass(frozen=True, slots=True)
class TokenizedRequest:
    """Prompt i is `prefix` + `suffixes[i]`, as the wire carries them. A lone prompt's prefix is its state.

    `state_tokens` of the prefix are the state's: 0 where nothing is to be shared. `input_tokens` is what `usage`
    reports: all prompts, with the state's tokens counted once. `added`: the tokens that each suffix adds to what the
    model reads, since those that begin alike are read together.
    """

    prefix: bytes
    suffixes: tuple[bytes, ...]
    state_tokens: int
    input_tokens: int
    added: tuple[int, ...] = ()


def render(request: SystemOneRequest, contract: PromptContract) -> RenderedRequest:
    opening = f"{contract.bos}<evidence>\n{_state_text(request.state)}\n</evidence>"
    questions = [_render_question(question_id, question) for question_id, question in request.questions.items()]
    return RenderedRequest(opening, tuple(questions))


def _state_text(state: Text) -> str:
    if not isinstance(state, str):
        return json.dumps(state, ensure_ascii=False, indent=1)
    if _CLOSING_TAG.search(state):
        return json.dumps(state, ensure_ascii=False)
    return state.strip()


def _render_question(question_id: str, question: Question) -> QuestionPrompts:
    instructions = f"\n\nQuestion: {_instructions(question)}"
    match question:
        case Noul():
            return QuestionPrompts(question_id, instructions, ("\nAnswer:",))
        case Choice():
            options = [_describe(name, text) for name, text in question.criteria.items()]
            listed = "".join(f"\n- {option}" for option in options)
            body = f"{instructions}\nCandidates:{listed}\nAmong the candidates, is it this one?\nCandidate: "
            asked = options
        case Score():
            levels = [plain_text(level) for level in question.criteria]
            scale = " < ".join(levels)
            body = (
                f"{instructions}\nScale from lowest to highest: {scale}\n"
                "Is the answer at the following level or higher?\nLevel: "
            )
            asked = levels[1:]
    return QuestionPrompts(question_id, body, tuple(f"{text}\nAnswer:" for text in asked))


def _instructions(question: Question) -> str:
    written = plain_text(question.instructions) if question.instructions else ""
    return written or _DEFAULT_INSTRUCTIONS[question.type]


def _describe(name: str, text: OptionalText) -> str:
    """The option's name stays as sent. Only an absent text leaves the name alone: a blank or an empty one shows."""
    return name if text is None or text == "" else f"{name}: {plain_text(text)}"


def tokenize(tokenizer: Tokenizer, rendered: RenderedRequest, context_tokens: int) -> TokenizedRequest:
    """Raises PromptTooLong for the first prompt that does not fit; nothing is ever cut."""
    prompts: list[bytes] = []
    for batch in _batches(rendered.prompts()):
        for (question_id, _), tokens in zip(batch, _encode(tokenizer, [text for _, text in batch]), strict=True):
            if len(tokens) > context_tokens * TOKEN_BYTES:
                raise _too_long(question_id, len(tokens) // TOKEN_BYTES, context_tokens)
            prompts.append(tokens)
    if not prompts:
        return TokenizedRequest(b"", (), 0, 0)
    (opening,) = _encode(tokenizer, [rendered.opening])
    return _split(opening, prompts)


def _batches(prompts: Iterator[tuple[str, str]]) -> Iterator[list[tuple[str, str]]]:
    """At least one prompt each, then as many as BATCH_CHARS allow."""
    batch: list[tuple[str, str]] = []
    chars = 0
    for prompt in prompts:
        chars += len(prompt[1])
        if batch and chars > BATCH_CHARS:
            yield batch
            batch, chars = [], len(prompt[1])
        batch.append(prompt)
    if batch:
        yield batch


def _encode(tokenizer: Tokenizer, texts: list[str]) -> list[bytes]:
    # Whole prompts only: merges may cross any border. A batch even of one: `encode` holds the GIL to its end, the batch
    # forms release it. The fast one differs in the offsets alone, which nobody reads.
    encodings = tokenizer.encode_batch_fast(texts, add_special_tokens=False)
    return [np.array(encoding.ids, dtype=_TOKEN).tobytes() for encoding in encodings]


def _split(opening: bytes, prompts: list[bytes]) -> TokenizedRequest:
    shortest = min(map(len, prompts)) // TOKEN_BYTES
    state_tokens = _common_tokens([opening[:-TOKEN_BYTES], *prompts])
    if state_tokens == shortest:  # a prompt that adds nothing to the state: jevos then shares nothing
        state_tokens = 0
    prefix_tokens = state_tokens if len(prompts) == 1 else min(_common_tokens(prompts), shortest - 1)
    cut = prefix_tokens * TOKEN_BYTES
    tokens = sum(map(len, prompts)) // TOKEN_BYTES
    suffixes = tuple(prompt[cut:] for prompt in prompts)
    return TokenizedRequest(
        prompts[0][:cut],
        suffixes,
        state_tokens,
        tokens - state_tokens * (len(prompts) - 1),
        _added_tokens(suffixes),
    )


def _added_tokens(suffixes: tuple[bytes, ...]) -> tuple[int, ...]:
    """Neighbours in the order of their bytes share most; a short run is read again by each."""
    added = [len(suffix) // TOKEN_BYTES for suffix in suffixes]
    order = sorted(range(len(suffixes)), key=suffixes.__getitem__)
    for before, place in itertools.pairwise(order):
        shared = _common_tokens([suffixes[before], suffixes[place]])
        if shared >= LEAST_SHARED_TOKENS:
            added[place] -= shared
    return tuple(added)


def _common_tokens(sequences: list[bytes]) -> int:
    """What the first and the last in byte order share, all between them share too: two comparisons for any number."""
    first, last = (np.frombuffer(tokens, _TOKEN) for tokens in (min(sequences), max(sequences)))
    length = min(len(first), len(last))
    differing = np.flatnonzero(first[:length] != last[:length])
    return int(differing[0]) if len(differing) else length


def _too_long(question_id: str, tokens: int, context_tokens: int) -> PromptTooLong:
    return PromptTooLong(
        f"Question {question_id!r} makes a prompt of {tokens} tokens with the state; the model reads {context_tokens}",
        loc=("body", "questions", question_id),
        kind="prompt_too_long",
    )
