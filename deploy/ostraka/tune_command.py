"""`ostraka model tune`: the flags, and what can be refused before PyTorch is loaded."""

import argparse
import importlib.util
import os
import sys
from pathlib import Path

from ostraka.interrupts import EXIT_INTERRUPTED
from ostraka.model_options import add_cache_dir, check_threads, find_cache_dir, flag_name, folder_name
from ostraka.tuning.settings import WORK_SUFFIX, TuneSettings
from ostraka_shared.errors import ConfigError
from ostraka_shared.options import expand_user
from ostraka_shared.setting_sources import refuse_unused
from ostraka_worker.build.catalog import DEFAULT_PRECISION, PRECISIONS

DEFAULT_EPOCHS = 3.0
DEFAULT_RATE = 1e-4
"""At 8e-4 the embedded model forgot more than it learned: its loss rose over the first thousands of examples."""


def register(parser: argparse.ArgumentParser) -> None:
    cores = len(os.sched_getaffinity(0))
    add = parser.add_argument
    add("data", nargs="+", metavar="DATA", help="labelled examples as `ostraka eval` has them, plain or gzip")
    add("--output", type=Path, required=True, metavar="DIR", help="the model folder to make")
    add("--name", type=flag_name, help="what the model is served as; default: the name of --output")
    add("--precision", choices=PRECISIONS, default=DEFAULT_PRECISION, help="of the model; default: %(default)s")
    add("--source", type=Path, metavar="SOURCE", help="a checkpoint as for build; default: the embedded model's")
    add(
        "--adapter",
        metavar="FILE",
        help="go on from this adapter of SOURCE; none: from SOURCE as it is; default: the embedded model's own",
    )
    add("--epochs", type=float, metavar="N", help=f"at most; default: {DEFAULT_EPOCHS:g}, or no end with --minutes")
    add("--minutes", type=float, metavar="M", help="at most, of learning")
    add("--rank", type=int, metavar="R", help="of a new adapter's matrices; default: 32")
    add("--layers", type=int, metavar="N", help="of a new adapter: keep the first N layers; default: all")
    add("--learning-rate", type=float, default=DEFAULT_RATE, metavar="R", help="at its highest; default: %(default)s")
    add("--seed", type=int, default=1, help="of all that is by lot; default: %(default)s")
    add("--threads", type=int, default=cores, metavar="N", help="cores to learn on; default: all, %(default)s here")
    add("--resume", action="store_true", help=f"go on with what was interrupted, from DIR{WORK_SUFFIX}")
    add_cache_dir(parser)


def run(values: argparse.Namespace) -> int:
    """Exit code 1 where a line of the data could not be used."""
    settings = read_settings(values)
    if importlib.util.find_spec("torch") is None:
        raise ConfigError("tuning needs PyTorch; in the clone: .venv/bin/pip install -c constraints.txt -e '.[tune]'")
    from ostraka.tuning.job import tune  # noqa: PLC0415  an extra

    finished = tune(settings)
    if finished is None:
        sys.stderr.write("ostraka: interrupted; what was learned is kept: go on with --resume\n")
        return EXIT_INTERRUPTED
    print(settings.output)
    return 0 if finished else 1


def read_settings(values: argparse.Namespace) -> TuneSettings:
    """Raises ConfigError."""
    if values.source:
        refuse_unused(values, "beside --source: nothing is fetched", "--cache-dir")
    output = expand_user(values.output)
    check_threads(values.threads)
    has_no_end = values.epochs is None and values.minutes is None
    try:
        return TuneSettings(
            data=tuple(values.data),
            output=output,
            name=values.name or folder_name(output.resolve().name),
            precision=values.precision,
            cache_dir=find_cache_dir(values),
            source=values.source,
            adapter=values.adapter,
            epochs=DEFAULT_EPOCHS if has_no_end else values.epochs,
            minutes=values.minutes,
            rank=values.rank,
            layers=values.layers,
            learning_rate=values.learning_rate,
            seed=values.seed,
            threads=values.threads,
            resume=values.resume,
        )
    except ValueError as bad:
        raise ConfigError(str(bad)) from bad
