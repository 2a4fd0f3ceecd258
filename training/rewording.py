"""Asks a public source's questions in other words, as often in the negative as not: for mixture.py.

A source asks thousands of texts in the same few wordings, one in ten of them in the negative. What was learned from it
was then known in those words: of one request "is it harmful?" was answered, "is it safe?" by chance.
"""

import json
import re
from dataclasses import dataclass
from random import Random

from training.own_data.fragments import Fragments, Phrases, fill

WORDINGS = "public"
WRITTEN_SHARE = 0.65
"""As of own data: the rest are statements, "is it true that ..."."""


@dataclass(frozen=True, slots=True)
class Known:
    """How a source asks for `claim`; `agrees`: yes where the claim holds."""

    wording: re.Pattern[str]
    claim: str
    agrees: bool


class Rewording:
    def __init__(self, share: float) -> None:
        """`share`: of the questions that can be asked otherwise, so many are."""
        fragments = Fragments(WORDINGS, heldout=False)
        self._share = share
        self._known: dict[str, list[Known]] = {}
        for name in fragments.names("known"):
            source, claim = name.split()
            lines = fragments.all_lines(f"known {name}")
            self._known[source] = [Known(_pattern(line[2:]), claim, line.startswith("+")) for line in lines]
        self._phrases = {each.claim: fragments.phrases(each.claim) for all_ in self._known.values() for each in all_}

    def reword(self, line: str, lot: Random) -> str:
        """An example as a line of JSON, and what is left as it is too."""
        example = json.loads(line)
        if example["type"] != "noul" or example["source"] not in self._known or lot.random() >= self._share:
            return line
        for known in self._known[example["source"]]:
            if found := known.wording.fullmatch(example["question"]):
                holds = example["label"] == known.agrees
                agrees = lot.random() < 0.5
                question = fill(_choose(self._phrases[known.claim], lot, agrees=agrees), found.groupdict())
                return json.dumps(example | {"question": question, "label": holds == agrees}, ensure_ascii=False)
        return line


def _pattern(wording: str) -> re.Pattern[str]:
    return re.compile(re.escape(wording).replace(r"\{q\}", "(?P<q>.+)"), re.DOTALL)


def _choose(phrases: Phrases, lot: Random, *, agrees: bool) -> str:
    written, framed = phrases.agreeing if agrees else phrases.opposing
    return lot.choice(written if lot.random() < WRITTEN_SHARE else framed)
