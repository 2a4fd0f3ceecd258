"""Prompts -> tokens: each line's once, however many prompts it is part of, and what the prompts share.

A prompt's parts each begin a line with a letter, after a line's end that no text of the client touches. Byte-level BPE
splits there before it merges, so the parts' tokens joined are the whole prompt's: 255 options cost 255 lines, and not
255 times the list of all of them. A tokenizer that merges across such a place is refused at the start.
"""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from tokenizers import Tokenizer

from ostraka_gateway.long_text import TOKEN, TooManyTokens, encode_long, longest_token
from ostraka_gateway.prompts import QuestionPrompts, RenderedRequest, render
from ostraka_gateway.schemas import Choice, Noul, Question, Score, SystemOneRequest
from ostraka_shared.errors import ModelDamaged, PromptTooLong
from ostraka_shared.messages import TOKEN_BYTES
from ostraka_shared.model_folder import PromptContract
from ostraka_shared.reading_rules import LEAST_SHARED_TOKENS

BATCH_CHARS = 1 << 18
"""Text tokenized at once. It bounds the tokenizer's own records, some 200 bytes a token. A longer line is tokenized in
pieces, and no further than it fits."""

_NEXT_WORD = "Question"
"""What follows every opening. Tokenized with it and cut off again: GPT-2's split takes two line ends for one word where
the text ends with them, and for two where a letter follows."""
_PROBES = ("", "a state", "tail \n", "12. -\u3000", "<", "\u00e9\u0301\U0001f600")
"""States and texts that end in every kind of character: a letter, a space, a digit, a mark, beyond ASCII."""


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


@dataclass(frozen=True, slots=True)
class _Line:
    """A question's body, or one of its endings."""

    question: QuestionPrompts
    text: str
    is_body: bool


class PromptTokenizer:
    """Thread-safe. Raises ModelDamaged for a tokenizer that merges across the places where prompts are cut."""

    def __init__(self, tokenizer: Tokenizer, contract: PromptContract) -> None:
        self._tokenizer = tokenizer
        self._longest = longest_token(tokenizer)
        self._next_word = len(self._encode([_NEXT_WORD])[0])
        closings = set()
        for rendered in _render_probes(contract):
            self._check_cuts(rendered)
            opening = self._encode_opening(rendered)
            (state,) = self._encode([rendered.state])
            closings.add(len(opening) // TOKEN_BYTES - _common_tokens([state[:-TOKEN_BYTES], opening]))
        if len(closings) > 1:
            raise ModelDamaged("the model's tokenizer reads the end of a state in a way that depends on the state")
        self._closing_tokens = closings.pop()

    def tokenize(self, rendered: RenderedRequest, context_tokens: int) -> TokenizedRequest:
        """Raises PromptTooLong for the first prompt that does not fit; nothing is ever cut."""
        if not rendered.prompt_count:
            return TokenizedRequest(b"", (), 0, 0)
        opening = self._encode_opening(rendered, context_tokens)
        room = context_tokens - len(opening) // TOKEN_BYTES
        body = b""
        rests: list[bytes] = []
        for lines in _batches(_lines(rendered)):
            for line, tokens in zip(lines, self._encode_lines(lines, room, context_tokens), strict=True):
                if line.is_body:
                    body = tokens
                    continue
                rests.append(body + tokens)
                if len(rests[-1]) > room * TOKEN_BYTES:
                    length = (len(opening) + len(rests[-1])) // TOKEN_BYTES
                    raise _too_long(line.question.question_id, str(length), context_tokens)
        return _join(opening, rests, len(opening) // TOKEN_BYTES - self._closing_tokens)

    def _encode_lines(self, lines: list[_Line], room: int, context_tokens: int) -> list[bytes]:
        """`room`: the tokens that fit behind the opening. Raises PromptTooLong for a long line that is longer."""
        if len(lines[0].text) <= BATCH_CHARS:
            return self._encode([line.text for line in lines])
        (line,) = lines
        try:
            return [encode_long(self._tokenizer, line.text, room, self._longest)]
        except TooManyTokens as bad:
            at_least = context_tokens - room + bad.tokens
            raise _too_long(line.question.question_id, f"at least {at_least}", context_tokens) from None

    def _encode_opening(self, rendered: RenderedRequest, context_tokens: int = 0) -> bytes:
        """Raises PromptTooLong for a long one that does not fit by itself."""
        text = rendered.opening + _NEXT_WORD
        if len(text) <= BATCH_CHARS:
            (tokens,) = self._encode([text])
            return tokens[: -self._next_word]
        try:
            tokens = encode_long(self._tokenizer, text, context_tokens + self._next_word // TOKEN_BYTES, self._longest)
        except TooManyTokens as bad:
            first = rendered.first().questions[0].question_id
            raise _too_long(first, f"at least {bad.tokens}", context_tokens) from None
        return tokens[: -self._next_word]

    def _check_cuts(self, rendered: RenderedRequest) -> None:
        opening = self._encode_opening(rendered)
        for question in rendered.questions:
            for ending in question.endings:
                whole, *rest = self._encode([rendered.opening + question.body + ending, question.body, ending])
                if whole != opening + b"".join(rest):
                    raise ModelDamaged(
                        "the model's tokenizer merges across the start of a line: only byte-level BPE that splits "
                        "text into words first can be served"
                    )

    def _encode(self, texts: list[str]) -> list[bytes]:
        # A batch even of one: `encode` holds the GIL to its end, the batch forms release it. The fast one differs in
        # the offsets alone, which nobody reads.
        encodings = self._tokenizer.encode_batch_fast(texts, add_special_tokens=False)
        return [np.array(encoding.ids, dtype=TOKEN).tobytes() for encoding in encodings]


def _render_probes(contract: PromptContract) -> Iterator[RenderedRequest]:
    for text in _PROBES:
        questions: dict[str, Question] = {
            "n": Noul(type="noul", instructions=text),
            "c": Choice(type="choice", instructions=text, criteria={text or "a": text, "Z": None}),
            "s": Score(type="score", instructions=text, criteria=[text, "Z"]),
        }
        yield render(SystemOneRequest(state=text, questions=questions), contract)


def _lines(rendered: RenderedRequest) -> Iterator[_Line]:
    for question in rendered.questions:
        yield _Line(question, question.body, is_body=True)
        for ending in question.endings:
            yield _Line(question, ending, is_body=False)


def _batches(lines: Iterator[_Line]) -> Iterator[list[_Line]]:
    """At least one line each, then as many as BATCH_CHARS allow."""
    batch: list[_Line] = []
    chars = 0
    for line in lines:
        chars += len(line.text)
        if batch and chars > BATCH_CHARS:
            yield batch
            batch, chars = [], len(line.text)
        batch.append(line)
    if batch:
        yield batch


def _join(opening: bytes, rests: list[bytes], state_tokens: int) -> TokenizedRequest:
    """Each rest has a token at least. Of several prompts, all but the last token of the shortest may be shared."""
    if len(rests) == 1:
        prompt = opening + rests[0]
        cut = state_tokens * TOKEN_BYTES
        lone = (prompt[cut:],)
        return TokenizedRequest(prompt[:cut], lone, state_tokens, len(prompt) // TOKEN_BYTES, _added_tokens(lone))
    cut = min(_common_tokens(rests) * TOKEN_BYTES, min(map(len, rests)) - TOKEN_BYTES)
    tokens = (len(opening) * len(rests) + sum(map(len, rests))) // TOKEN_BYTES
    suffixes = tuple(rest[cut:] for rest in rests)
    return TokenizedRequest(
        opening + rests[0][:cut],
        suffixes,
        state_tokens,
        tokens - state_tokens * (len(rests) - 1),
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
    first, last = (np.frombuffer(tokens, TOKEN) for tokens in (min(sequences), max(sequences)))
    length = min(len(first), len(last))
    differing = np.flatnonzero(first[:length] != last[:length])
    return int(differing[0]) if len(differing) else length


def _too_long(question_id: str, tokens: str, context_tokens: int) -> PromptTooLong:
    return PromptTooLong(
        f"Question {question_id!r} makes a prompt of {tokens} tokens with the state; the model reads {context_tokens}",
        loc=("body", "questions", question_id),
        kind="prompt_too_long",
    )
