"""The numbers and names of a model, as its file has them: each taken by name and type, or refused by name."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ostraka_shared.errors import SourceRefused, UnknownArchitecture


class Settings:
    """`source` is named in what is refused; `prefix` stands before every key."""

    def __init__(self, values: Mapping[str, Any], source: Path, prefix: str = "") -> None:
        self._values = values
        self._source = source
        self._prefix = prefix

    def under(self, prefix: str) -> "Settings":
        return Settings(self._values, self._source, self._prefix + prefix)

    def get(self, key: str) -> Any:
        """None for a key that is absent, and for one that is null."""
        return self._values.get(self._prefix + key)

    def whole(self, key: str, default: int | None = None) -> int:
        value = self._present(key, default)
        if not isinstance(value, int) or isinstance(value, bool):
            raise self._wrong(key, value, "a whole number")
        return value

    def real(self, key: str, default: float | None = None) -> float:
        value = self._present(key, default)
        if not isinstance(value, int | float) or isinstance(value, bool):
            raise self._wrong(key, value, "a number")
        try:
            return float(value)
        except OverflowError as huge:
            raise self._wrong(key, value, "a number of this world") from huge

    def text(self, key: str, default: str | None = None) -> str:
        value = self._present(key, default)
        if not isinstance(value, str):
            raise self._wrong(key, value, "a text")
        return value

    def texts(self, key: str) -> list[str]:
        value = self._present(key, None)
        if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
            raise self._wrong(key, value, "a list of texts")
        return value

    def wholes(self, key: str) -> list[int]:
        value = self._present(key, None)
        if not isinstance(value, list) or not all(type(each) is int for each in value):
            raise self._wrong(key, value, "a list of whole numbers")
        return value

    def refuse(self, key: str, harmless: tuple[object, ...], what: str) -> None:
        """Raises UnknownArchitecture where the key is neither absent nor harmless: it would change every answer."""
        value = self.get(key)
        if value is not None and value not in harmless:
            raise UnknownArchitecture(f"cannot build a model with {what} ({self._prefix}{key} is {_short(value)})")

    def _present(self, key: str, default: object) -> Any:
        value = self.get(key)
        if value is None:
            value = default
        if value is None:
            raise SourceRefused(f"{self._source} lacks {self._prefix}{key}, which such a model must have")
        return value

    def _wrong(self, key: str, value: object, wanted: str) -> SourceRefused:
        return SourceRefused(f"{self._source} has {self._prefix}{key} as {_short(value)}, where {wanted} is expected")


def read_json(path: Path) -> dict[str, Any]:
    """The JSON object in a file. Raises SourceRefused."""
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as absent:
        raise SourceRefused(f"there is no {path.name} in {path.parent}: fetch the whole folder") from absent
    except (ValueError, RecursionError) as bad:
        raise SourceRefused(f"{path} is not JSON ({bad}): fetch it again") from bad
    if not isinstance(values, dict):
        raise SourceRefused(f"{path} is no JSON object: fetch it again")
    return values


def _short(value: object) -> str:
    try:
        written = repr(value)
    except (ValueError, RecursionError):  # a number of thousands of digits, a list in a list in a list
        return f"an enormous {type(value).__name__}"
    return written if len(written) <= 60 else f"{written[:57]}..."
