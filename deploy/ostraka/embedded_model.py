"""The embedded model for a command: found in the cache, or built there first."""

from pathlib import Path

from ostraka_shared.model_folder import ModelFolder
from ostraka_worker.build.catalog import find_embedded


def embedded_model(cache_dir: str, precision: str) -> ModelFolder:
    """Raises ModelError. The builder's packages (0.4 s of imports) are loaded only where it has something to do."""
    place = Path(cache_dir).expanduser()
    if folder := find_embedded(place, precision):
        return folder
    from ostraka_worker.build.builder import ensure_embedded  # noqa: PLC0415
    from ostraka_worker.build.progress import for_stderr  # noqa: PLC0415

    return ensure_embedded(place, precision, for_stderr())
