"""The model a command asks for: a folder, or the embedded one, found in the cache or built there first.

A child builds it: the builder's memory and threads (tqdm starts one) are not for a process that goes on and forks.
"""

import os
import signal
import subprocess
import sys
from pathlib import Path

from ostraka.children import die_with
from ostraka.interrupts import EXIT_INTERRUPTED, ending_in_order
from ostraka_shared.errors import ConfigError, ModelError, ModelMissing
from ostraka_shared.model_folder import ModelFolder, open_folder
from ostraka_shared.options import expand_user
from ostraka_shared.setting_sources import flag_named
from ostraka_worker.build.catalog import DEFAULT_PRECISION, find_embedded, models_dir


def find_model(model: str | None, cache_dir: str, precision: str | None, flag: str = "--model") -> ModelFolder:
    """`precision`: None where nobody asked for one. `flag`: what named the model.

    Raises ModelError; ConfigError where `model` has another precision than was asked for; SystemExit where a build
    failed and has said why in a line of its own.
    """
    if model:
        with flag_named(flag):
            folder = _open(expand_user(model), expand_user(cache_dir))
        return _of_precision(folder, precision)
    with flag_named("--cache-dir"):
        place, precision = expand_user(cache_dir), precision or DEFAULT_PRECISION
    if found := find_embedded(place, precision):
        return found
    _build(place, precision)
    if found := find_embedded(place, precision):
        return found
    raise ModelError(f"the embedded model was built in {place} and is not there: build it again")


def _open(path: Path, cache_dir: Path) -> ModelFolder:
    """A name of `ostraka model list` is no path, and never taken for one: the same command would serve another model
    from another folder."""
    try:
        return open_folder(path)
    except ModelMissing as bad:
        listed = models_dir(cache_dir) / path
        if len(path.parts) != 1 or not listed.is_dir():
            raise
        raise ModelMissing(f"no model folder at {path}; the one that `ostraka model list` shows is {listed}") from bad


def _of_precision(folder: ModelFolder, asked: str | None) -> ModelFolder:
    """A folder's precision is fixed when it is built."""
    if asked not in (None, folder.spec.precision):
        raise ConfigError(
            f"--precision {asked} and --model {folder.path}, which is a model in {folder.spec.precision}, contradict "
            "each other: leave one of them out (flag, variable or config key), or build the folder anew with "
            f"`ostraka model build SOURCE --precision {asked}`"
        )
    return folder


def _build(cache_dir: Path, precision: str) -> None:
    flags = ["--precision", precision, "--cache-dir", str(cache_dir)]
    with ending_in_order(signal.SIGTERM):
        code = _run([sys.executable, "-m", "ostraka", "model", "build", *flags])
    if code < 0:
        raise ModelError(f"the build was ended by {signal.Signals(-code).name}: is there memory enough?")
    if code:
        raise SystemExit(EXIT_INTERRUPTED if code == EXIT_INTERRUPTED else 1)


def _run(command: list[str]) -> int:
    """Interrupted where we are, or where we die, it puts its half-made folder away."""
    building = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=sys.stderr,
        # Our variables are about this command; what the build needs are its flags.
        env={name: value for name, value in os.environ.items() if not name.startswith("OSTRAKA_")},
        process_group=0,  # Ctrl-C reaches it once, by us
        preexec_fn=die_with(os.getpid(), signal.SIGINT),  # noqa: PLW1509  this process has one thread
    )
    try:
        return building.wait()
    except (KeyboardInterrupt, SystemExit):
        building.send_signal(signal.SIGINT)
        building.wait()
        raise
