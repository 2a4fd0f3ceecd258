"""Lines of labelled examples that could not be used: counted, and the first of them said."""

import sys

from tqdm import tqdm

TOLD = 10
"""Bad lines named on stderr; the others are only counted, and all are in --json."""


class BadLines:
    """What could not be used: place and reason, the first of them said at once."""

    def __init__(self) -> None:
        self.all: list[tuple[str, str]] = []

    def add(self, place: str, reason: str) -> None:
        self.all.append((place, reason))
        if len(self.all) <= TOLD:
            tqdm.write(f"ostraka: {place}: {reason}", file=sys.stderr)
        if len(self.all) == TOLD:
            tqdm.write("ostraka: more such lines are only counted", file=sys.stderr)
