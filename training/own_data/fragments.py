"""The hand-written fragments: text files of sections, read for one split.

A section is `[name]` and its lines. In `[ask CLAIM]` a line begins with its sign: `+` is answered yes where the claim
holds, `-` no where it holds; `=` is a statement that is true where it holds, `!` one that is false there.
A sixth of every section's lines is for the held-out split alone; held-out questions are asked beside known ones.
"""

import re
import zlib
from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(__file__).with_name("fragments")
HELDOUT_SHARE = 1 / 6

_TRUE = (
    "{S}.", "{S}", "Is it true that {s}?", "Is it correct that {s}?", "True or false: {s}.", "Claim: {s}.",
    "Would it be right to say that {s}?", "Can we conclude that {s}?", "Judging by the text, is it the case that {s}?",
    "Going by what is written, {s}.", "Do you agree that {s}?", "Does the text support the claim that {s}?",
    'Is the statement "{S}" accurate?', "is it so that {s}", "Verify: {s}",
)  # fmt: skip
_FALSE = (
    "Is it false that {s}?", "It is not the case that {s}.", "Is it wrong to say that {s}?",
    "Would it be a mistake to say that {s}?", "It would be untrue to say that {s}.",
    'Is the statement "{S}" inaccurate?', "Is it incorrect that {s}?", "Would you deny that {s}?",
    "Does the text contradict the claim that {s}?",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Phrases:
    """The wordings of one claim: `agreeing` are answered yes where it holds, `opposing` no.

    Each: the questions as written, and statements put in frames, of which there are many more.
    """

    agreeing: tuple[list[str], list[str]]
    opposing: tuple[list[str], list[str]]


class Fragments:
    """One file, one split."""

    def __init__(self, name: str, *, heldout: bool) -> None:
        self._sections = _parse((FOLDER / f"{name}.txt").read_text(encoding="utf-8"))
        self.is_heldout = heldout

    def names(self, prefix: str) -> list[str]:
        """What follows `prefix ` in the titles of sections that begin with it."""
        return [title.split(" ", 1)[1] for title in self._sections if title.startswith(f"{prefix} ")]

    def sections(self) -> list[str]:
        return list(self._sections)

    def has(self, section: str) -> bool:
        return section in self._sections

    def all_lines(self, section: str) -> list[str]:
        """For what describes the kind and belongs to both splits."""
        return self._sections[section]

    def lines(self, section: str) -> list[str]:
        held, kept = _split(self._sections[section])
        return held if self.is_heldout else kept

    def words(self, section: str) -> list[str]:
        """For wordings of questions: the held-out split asks all of them."""
        return self._sections[section] if self.is_heldout else _split(self._sections[section])[1]

    def phrases(self, claim: str) -> Phrases:
        """A claim without wordings of its own is asked in those of `*`."""
        phrases = Phrases(([], []), ([], []))
        for line in self._asked(claim):
            sign, text = line[0], line[1:].strip()
            if sign in "+-":
                (phrases.agreeing if sign == "+" else phrases.opposing)[0].append(text)
                continue
            supports, denies = phrases.agreeing[1], phrases.opposing[1]
            if sign == "!":
                supports, denies = denies, supports
            supports.extend(_wrap(text, _TRUE))
            if sign == "=":  # a negation denied is a puzzle, not a question
                denies.extend(_wrap(text, _FALSE))
        return phrases

    def _asked(self, claim: str) -> list[str]:
        general = self.words("ask *") if self.has("ask *") else []
        return general + (self.words(f"ask {claim}") if self.has(f"ask {claim}") else [])


def fill(text: str, slots: dict[str, str]) -> str:
    """`{name}` becomes `slots["name"]`; an unknown one is a fault of the fragments (KeyError)."""
    return re.sub(r"\{(\w+)\}", lambda found: slots[found[1]], text)


def _parse(text: str) -> dict[str, list[str]]:
    sections: dict[str, list[str]] = {}
    for raw in text.splitlines():
        line = raw.strip()
        if line.startswith("[") and line.endswith("]"):
            section = sections.setdefault(line[1:-1], [])
        elif line and not line.startswith("#"):
            section.append(line)
    return sections


def _split(lines: list[str]) -> tuple[list[str], list[str]]:
    """(held out, kept), by a hash of the text alone: a new line moves few others."""
    order = sorted(lines, key=lambda line: zlib.crc32(line.encode()))
    count = max(1, round(len(lines) * HELDOUT_SHARE)) if len(lines) > 1 else 0
    held = set(order[:count])
    return [line for line in lines if line in held] or lines, [line for line in lines if line not in held]


def _wrap(statement: str, frames: tuple[str, ...]) -> list[str]:
    capital = statement[:1].upper() + statement[1:]
    return [frame.replace("{S}", capital).replace("{s}", statement) for frame in frames]
