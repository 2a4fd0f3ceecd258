"""How a build tells a person where it is: a bar on a terminal, a line a step anywhere else, or nothing at all."""

import sys
from typing import Protocol

from tqdm import tqdm


class Progress(Protocol):
    """One step at a time: `begin` ends the step before it, `end` ends the last."""

    def begin(self, step: str, total: int = 0, unit: str = "") -> None: ...

    def advance(self, amount: int = 1) -> None: ...

    def end(self) -> None: ...


class Silent:
    def begin(self, step: str, total: int = 0, unit: str = "") -> None: ...

    def advance(self, amount: int = 1) -> None: ...

    def end(self) -> None: ...


class Lines:
    """A line a step on stderr, for logs."""

    def begin(self, step: str, total: int = 0, unit: str = "") -> None:  # noqa: ARG002
        sys.stderr.write(f"ostraka: {step}\n")
        sys.stderr.flush()

    def advance(self, amount: int = 1) -> None: ...

    def end(self) -> None: ...


class Bars(Lines):
    """A bar for each step that knows its total, a line for the others."""

    def __init__(self) -> None:
        self._bar: tqdm | None = None

    def begin(self, step: str, total: int = 0, unit: str = "") -> None:
        self.end()
        if not total:
            super().begin(step)
            return
        self._bar = tqdm(total=total, unit=unit, desc=f"ostraka: {step}", unit_scale=total > 10_000, file=sys.stderr)

    def advance(self, amount: int = 1) -> None:
        if self._bar is not None:
            self._bar.update(amount)

    def end(self) -> None:
        if self._bar is not None:
            self._bar.close()
            self._bar = None


def for_stderr() -> Progress:
    return Bars() if sys.stderr.isatty() else Lines()
