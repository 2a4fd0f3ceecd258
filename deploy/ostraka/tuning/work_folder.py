"""The folder that a tuning works in: usable before hours of learning, and left only with something in it."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

from ostraka.tuning.settings import TuneSettings
from ostraka_shared.errors import ConfigError
from ostraka_worker.build.builder import refuse_fixed, refuse_other

PLACE_FILE, LOG_FILE = "place.kept", "log.jsonl"
"""Named as no adapter can be, whatever the model is called."""


@contextlib.contextmanager
def open_work(settings: TuneSettings) -> Iterator[Path]:
    """Raises ConfigError, as where there is something already, or nothing to go on with."""
    refuse_other(settings.output, settings.name)
    refuse_fixed(settings.output)
    work = settings.work
    if settings.resume:
        if not (work / PLACE_FILE).is_file():
            raise ConfigError(f"there is nothing to go on with in {work}: leave --resume out")
    elif (work / PLACE_FILE).exists() or any(work.glob("*.safetensors")):
        raise ConfigError(f"{work} has a tuning already: --resume goes on with it, or remove it to begin again")
    try:
        work.mkdir(parents=True, exist_ok=True)
        if not settings.resume:  # one that was killed before its first saving may have left some
            (work / LOG_FILE).write_bytes(b"")
    except OSError as bad:
        raise ConfigError(f"{work} cannot be written: {bad.strerror}") from bad
    try:
        yield work
    finally:
        _remove_unused(work)


def _remove_unused(work: Path) -> None:
    log = work / LOG_FILE
    with contextlib.suppress(OSError):  # there is something in it, or it is gone
        if not log.stat().st_size and {path.name for path in work.iterdir()} == {LOG_FILE}:
            log.unlink()
            work.rmdir()
