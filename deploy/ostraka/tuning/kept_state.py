"""Where a tuning is, in one file to go on from: numbers and a JSON text, nothing that is executed."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from ostraka_shared.errors import ConfigError, ModelError
from ostraka_worker.build.decoder import Tensor
from ostraka_worker.build.safetensors_files import is_whole, read_contents, write_file

_PLACE = "place"


@dataclass(slots=True)
class Place:
    """`batch`: how many of the epoch are done; `asked`: what the tuning was asked for, which must not change."""

    asked: dict[str, Any]
    step: int = 0
    epoch: int = 0
    batch: int = 0
    examples: int = 0
    tokens: int = 0
    elapsed_s: float = 0.0
    best_loss: float | None = None
    looks_since: int = 0
    before: list[float] = field(default_factory=list)
    """The margins of the held-out prompts before the first step."""


def keep(path: Path, tensors: Mapping[str, Tensor], place: Place) -> None:
    """The file there before is there until this one is whole."""
    unfinished = path.with_name(f".{path.name}.unfinished")
    try:
        write_file(unfinished, tensors, {_PLACE: json.dumps(asdict(place))})
        unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)


def read_kept(path: Path, asked: Mapping[str, Any]) -> tuple[dict[str, Tensor], Place]:
    """Raises ConfigError where it is none, or of a tuning that was asked for otherwise."""
    try:
        contents = read_contents(path, ("F32",))
        if not is_whole(path, contents):
            raise ConfigError(f"{path} was altered or is not whole: remove its folder and begin again")
        place = Place(**json.loads(contents.metadata[_PLACE]))
    except (ModelError, OSError, KeyError, TypeError, ValueError) as bad:
        raise ConfigError(f"{path} is no tuning to go on with ({bad}): remove its folder and begin again") from bad
    if differing := [name for name in asked if place.asked.get(name) != asked[name]]:
        name = differing[0]
        raise ConfigError(
            f"{path} is of a tuning with {name} {place.asked.get(name)!r}, not {asked[name]!r}: ask for the same, or"
            " remove its folder and begin again"
        )
    return {name: stored.read() for name, stored in contents.places.items()}, place
