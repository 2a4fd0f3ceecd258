"""Labelled examples, one JSON object a line, plain or gzip: read, checked, and made into requests."""

import gzip
import json
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Literal, cast

from ostraka_shared.errors import ConfigError

Form = Literal["noul", "choice", "score"]
FORMS: tuple[Form, ...] = ("noul", "choice", "score")
QUESTION_ID = "q"
UNNAMED = "(none)"
_GZIP_MAGIC = b"\x1f\x8b"


@dataclass(frozen=True, slots=True)
class Example:
    """`label`: of a noul 1 for yes and 0 for no, else the place of the right option or level. `place`: file and line.

    `group` is what results are told apart by. `options` has the names of a choice's options, in order.
    """

    place: str
    group: str
    state: object
    question: object
    form: Form
    label: int
    size: int
    criteria: object = None
    options: tuple[str, ...] = ()

    def body(self) -> bytes:
        """The request that asks it."""
        asked: dict[str, object] = {"type": self.form, "instructions": self.question}
        if self.criteria is not None:
            asked["criteria"] = self.criteria
        request = {"model": "jev-latest", "state": self.state, "questions": {QUESTION_ID: asked}}
        return json.dumps(request, ensure_ascii=False).encode()


@dataclass(frozen=True, slots=True)
class Prediction:
    """`probabilities`, one for each option or level; of a noul for no and for yes."""

    example: Example
    probabilities: tuple[float, ...]


class BadExample(ValueError):
    """A line that is no labelled example; the message says why."""


def read_examples(sources: Sequence[str], group_by: str, report: Callable[[str, str], None]) -> Iterator[Example]:
    """In order; blank lines are skipped. `report(place, reason)` for each line that cannot be used.
    Raises ConfigError where a file cannot be read."""
    for source in sources:
        try:
            with _open(Path(source)) as lines:
                for number, line in enumerate(lines, 1):
                    if not line.strip():
                        continue
                    place = f"{source}:{number}"
                    try:
                        yield parse_example(line, place, group_by)
                    except BadExample as bad:
                        report(place, str(bad))
        except (OSError, EOFError, zlib.error) as bad:
            raise ConfigError(f"{source}: {getattr(bad, 'strerror', None) or bad}") from bad


def parse_example(line: bytes, place: str, group_by: str = "source") -> Example:
    """Raises BadExample."""
    try:
        fields = json.loads(line)
        json.dumps(fields, ensure_ascii=False).encode()
    except UnicodeEncodeError as bad:  # half of a character, such as no server and no tokenizer takes
        raise BadExample(f"not Unicode: {bad}") from bad
    except (ValueError, RecursionError) as bad:
        raise BadExample(f"not JSON: {bad}") from bad
    if not isinstance(fields, dict):
        raise BadExample("not a JSON object")
    for name in ("state", "question", "label"):
        if name not in fields:
            raise BadExample(f"it has no {name!r}")
    form = fields.get("type", "noul")
    if form not in FORMS:
        raise BadExample(f"'type' is {form!r}, not one of {', '.join(FORMS)}")
    criteria, names = _criteria(form, fields)
    size = 2 if form == "noul" else len(names)
    label = _label(form, fields["label"], size)
    group = str(fields.get(group_by, UNNAMED))
    options = names if form == "choice" else ()
    return Example(place, group, fields["state"], fields["question"], form, label, size, criteria, options)


def _criteria(form: Form, fields: dict[str, object]) -> tuple[object, tuple[str, ...]]:
    """(the request's criteria, names)"""
    if form == "noul":
        return None, ()
    if form == "score":
        levels = fields.get("levels")
        if not isinstance(levels, list) or len(levels) < 2:
            raise BadExample("a score needs 'levels', a list of two or more, lowest first")
        return levels, tuple(map(str, levels))
    options = fields.get("options")
    if isinstance(options, list) and all(isinstance(name, str) for name in options):
        named: dict[str, object] = dict.fromkeys(options)
        if len(named) < len(options):
            raise BadExample("two of its 'options' have the same name")
        options = named
    if not isinstance(options, dict) or len(options) < 2:
        raise BadExample("a choice needs 'options': two or more names in a list, or an object of name and description")
    return options, tuple(options)


def _label(form: Form, label: object, size: int) -> int:
    if form == "noul":
        if not isinstance(label, bool):
            raise BadExample(f"the label of a noul is true or false, not {label!r}")
        return int(label)
    if isinstance(label, bool) or not isinstance(label, int) or not 0 <= label < size:
        raise BadExample(f"the label of a {form} is a place from 0 to {size - 1}, not {label!r}")
    return label


def _open(path: Path) -> BinaryIO:
    """Compressed or not is told by the first bytes, whatever the name."""
    with path.open("rb") as file:
        is_gzip = file.read(2) == _GZIP_MAGIC
    return cast("BinaryIO", gzip.open(path) if is_gzip else path.open("rb"))
