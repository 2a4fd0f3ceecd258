"""`python -m ostraka_worker.zygote`: loads the model once, and forks the workers that the supervisor asks for.

A spare has made a call, so that a worker is there in the time it takes to dial the gateway.
"""

import os
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import structlog

from ostraka_shared.model_folder import open_folder
from ostraka_shared.zygote import Program, run_program
from ostraka_worker.__main__ import main as work
from ostraka_worker.config import ZygoteConfig
from ostraka_worker.loading import Warm, load_owned
from ostraka_worker.service import warm_up

log = structlog.get_logger()

PROGRAM = Program(
    module="ostraka_worker.zygote",
    description="Loads a model and forks workers; started by `ostraka serve`.",
    settings=ZygoteConfig,
    log_name="zygote",
    ps_name="ostraka zygote",
)


def main(argv: list[str] | None = None) -> int:
    return run_program(PROGRAM, lambda config: WorkerLife(load_warm(config)), argv)


def load_warm(config: ZygoteConfig) -> Warm:
    if config.cores:
        os.sched_setaffinity(0, config.cores)
    begun = time.monotonic()
    folder = replace(open_folder(Path(config.model)), seal=config.seal or "")
    loaded = load_owned(folder, threads=1)
    warm = Warm(loaded, warm_up(loaded.engine), loaded.proof())
    log.info("model_loaded", model=loaded.folder.spec.name, load_s=round(time.monotonic() - begun, 2))
    return warm


class WorkerLife:
    spare_name = "ostraka spare"

    def __init__(self, warm: Warm) -> None:
        self._warm = warm

    def prepare(self) -> bool:
        """A call, which must give the bits that it gave before the fork."""
        is_same = self._warm.loaded.proof() == self._warm.proof
        if not is_same:
            log.error("fork_answers_otherwise")
        return is_same

    def live(self, arguments: list[str], _: Sequence[int], on_serving: Callable[[], None]) -> int:
        return work(arguments, self._warm, on_serving)


if __name__ == "__main__":
    sys.exit(main())
