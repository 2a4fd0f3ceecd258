"""`python -m ostraka_worker.zygote`: loads the model once, and forks the workers that the supervisor asks for.

A spare has made a call, so that a worker is there in the time it takes to dial the gateway.
"""

import os
import socket
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import structlog

from ostraka_shared.errors import OstrakaError
from ostraka_shared.logs import configure_logs
from ostraka_shared.model_folder import open_folder
from ostraka_shared.options import add_options, build_parser, read_settings
from ostraka_shared.process_control import name_process
from ostraka_shared.stray_signals import log_stray_signals
from ostraka_shared.zygote import Zygote
from ostraka_worker.__main__ import EXIT_CANNOT_SERVE
from ostraka_worker.__main__ import main as work
from ostraka_worker.config import ZygoteConfig
from ostraka_worker.loading import Warm, load_owned
from ostraka_worker.service import warm_up

log = structlog.get_logger()


def main(argv: list[str] | None = None) -> int:
    parser = build_parser("ostraka_worker.zygote", "Loads a model and forks workers; started by `ostraka serve`.")
    add_options(parser, ZygoteConfig)
    values = parser.parse_args(argv)
    configure_logs("zygote", values.log_format, values.log_level)
    log_stray_signals()
    name_process("ostraka zygote")
    try:
        config = read_settings(ZygoteConfig, values)
        with socket.socket(fileno=config.control_fd) as control:
            Zygote(control, WorkerLife(load_warm(config))).serve()
    except (OstrakaError, OSError, RuntimeError, MemoryError) as bad:
        log.error("cannot_fork_workers", error=type(bad).__name__, detail=str(bad))
        return EXIT_CANNOT_SERVE
    return 0


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

    def live(self, arguments: list[str], _: Sequence[int]) -> int:
        return work(arguments, self._warm)


if __name__ == "__main__":
    sys.exit(main())
