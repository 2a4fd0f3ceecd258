"""Answers given before, by what was asked to the last token and the fingerprint of the model that answered. Pure.

The least recently used go first. A question is kept whole: no digest, and so no two that could be mistaken.
"""

from dataclasses import dataclass, field

Question = tuple[bytes, tuple[bytes, ...], int]
"""What is asked, to the last bit: prefix, suffixes, tokens of the state."""

ENTRY_BYTES = 400
PROMPT_BYTES = 90
"""What Python adds: to an entry, and to each of its prompts with its answer."""


@dataclass(slots=True)
class AnswerCache:
    """At most `most_bytes` of them; 0 keeps none."""

    most_bytes: int
    bytes: int = 0
    hits: int = 0
    _answers: dict[tuple[str, Question], tuple[float, ...]] = field(default_factory=dict)

    def find(self, fingerprint: str, question: Question) -> tuple[float, ...] | None:
        if not self.most_bytes:
            return None
        key = (fingerprint, question)
        if (answers := self._answers.pop(key, None)) is not None:
            self._answers[key] = answers
            self.hits += 1
        return answers

    def keep(self, fingerprint: str, question: Question, answers: tuple[float, ...]) -> None:
        key, size = (fingerprint, question), _size(question)
        if size > self.most_bytes or key in self._answers:
            return
        self._answers[key] = answers
        self.bytes += size
        while self.bytes > self.most_bytes:
            _, oldest = next(iter(self._answers))
            del self._answers[next(iter(self._answers))]
            self.bytes -= _size(oldest)


def _size(question: Question) -> int:
    prefix, suffixes, _ = question
    return ENTRY_BYTES + len(prefix) + sum(map(len, suffixes)) + PROMPT_BYTES * len(suffixes)
