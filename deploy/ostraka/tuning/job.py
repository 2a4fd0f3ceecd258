"""A whole tuning: read, learn, calibrate, build, measure. The wiring of what the other modules do."""

import signal
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

import torch
from tqdm import tqdm

from ostraka.bad_lines import BadLines
from ostraka.evaluation.examples import read_examples
from ostraka.tuning.batches import BATCH_TOKENS
from ostraka.tuning.encoding import Encoded, Encoder
from ostraka.tuning.held_out import HeldOut
from ostraka.tuning.kept_state import Place, read_kept
from ostraka.tuning.learning import Learner
from ostraka.tuning.loop import Plan, Tuning, Watcher
from ostraka.tuning.network import Network
from ostraka.tuning.orders import split
from ostraka.tuning.outcome import Outcome, finish
from ostraka.tuning.schedule import Limits, steps_between
from ostraka.tuning.settings import TuneSettings
from ostraka.tuning.start import Start, Wanted, open_start
from ostraka.tuning.work_folder import LOG_FILE, PLACE_FILE, open_work
from ostraka_shared.errors import ConfigError
from ostraka_shared.model_folder import hash_file
from ostraka_worker.build.progress import for_stderr
from ostraka_worker.build.workspace import full_disk_named

MOST_TOKENS = 1024
"""Of an example, its prompts together: past it, attention's memory in training is gigabytes."""
_BF16_FLAGS = frozenset({"avx512_bf16", "amx_bf16"})


def tune(settings: TuneSettings) -> bool | None:
    """Whether every line of the data could be used; None where it was interrupted. Raises OstrakaError."""
    torch.set_num_threads(settings.threads)
    with open_work(settings) as work:
        return _tune(settings, work)


def _tune(settings: TuneSettings, work: Path) -> bool | None:
    bad = BadLines()
    training, held = split(list(read_examples(settings.data, "source", bad.add)))
    wanted = Wanted(
        settings.source, settings.adapter, settings.rank, settings.layers, settings.seed, settings.cache_dir
    )
    with tempfile.TemporaryDirectory(prefix="ostraka-tune-") as folder:
        start = open_start(wanted, Path(folder), for_stderr())
        encoder = Encoder(start.tokenizer, start.contract, start.config.context_tokens)
        usable = encoder.encode_usable(training, MOST_TOKENS, bad.add)
        held_out = _held_out(encoder.encode_usable(held, MOST_TOKENS, bad.add), usable)
        dtype = best_dtype(Path("/proc/cpuinfo").read_text(encoding="utf-8"))
        network = Network(start.checkpoint, start.config, start.parameters, dtype)
    with full_disk_named(work):
        place, is_whole = _learn(settings, start, encoder, usable, held_out, network)
        if not is_whole:
            return None
        finish(Outcome(settings, wanted, start, network, held_out, place), for_stderr())
    if bad.all:
        print(f"ostraka: {len(bad.all)} lines could not be used", file=sys.stderr)
    return not bad.all


def best_dtype(cpu: str) -> torch.dtype:
    """bfloat16 halves what is read, but a CPU that does not multiply it is slower with it. `cpu`: /proc/cpuinfo."""
    flags = next((line for line in cpu.splitlines() if line.startswith("flags")), "")
    return torch.bfloat16 if _BF16_FLAGS & set(flags.split()) else torch.float32


def _learn(
    settings: TuneSettings, start: Start, encoder: Encoder, usable: list[Encoded], held_out: HeldOut, network: Network
) -> tuple[Place, bool]:
    place, tensors = _place(settings, start)
    examples = [one.example for one in usable]
    limits = Limits(len(examples), settings.epochs, settings.minutes)
    batches = -(-sum(one.tokens for one in usable) // BATCH_TOKENS)
    work = settings.work
    with Bar(limits, place) as bar, stop_on_signal() as is_stopped:
        plan = Plan(
            examples,
            encoder.encode_shuffled,
            limits,
            settings.seed,
            steps_between(batches),
            work / PLACE_FILE,
            work / LOG_FILE,
        )
        tuning = Tuning(plan, Learner(network, settings.learning_rate), held_out, place, bar)
        if tensors:
            tuning.resume(tensors)
        return place, tuning.run(is_stopped)


def _place(settings: TuneSettings, start: Start) -> tuple[Place, Mapping[str, Any]]:
    """(where to begin, what was kept: nothing at the beginning)"""
    asked = {
        "data": [hash_file(Path(path)) for path in settings.data],
        "source": dict(start.source),
        "rank": start.record.rank,
        "layers": start.record.layers,
        "learning_rate": settings.learning_rate,
        "seed": settings.seed,
    }
    if not settings.resume:
        return Place(asked), {}
    tensors, place = read_kept(settings.work / PLACE_FILE, asked)
    return place, tensors


def _held_out(held: list[Encoded], usable: list[Encoded]) -> HeldOut:
    if not usable or not held:
        raise ConfigError(
            f"{len(usable)} examples to learn from and {len(held)} to hold out are too few: give examples of 20 states"
            " or more (docs/eval.md has their form)"
        )
    return HeldOut(held)


class Bar(Watcher):
    """Examples of those to be read, with their rate and the time left, on a terminal; a line a look everywhere."""

    def __init__(self, limits: Limits, place: Place) -> None:
        self._is_timed = limits.epochs is None
        self._total = (limits.minutes or 0) * 60 if self._is_timed else (limits.epochs or 0) * limits.examples
        begun = limits.share(place.examples, place.elapsed_s) * self._total
        unit = "s" if self._is_timed else " examples"
        self._bar = tqdm(
            total=round(self._total), initial=round(begun), unit=unit, desc="ostraka: tuning", disable=None,
            file=sys.stderr,
        )  # fmt: skip

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.close()

    def stepped(self, share: float, loss: float) -> None:
        self._bar.set_postfix(loss=f"{loss:.3f}", refresh=False)
        self._bar.update(min(round(share * self._total), round(self._total)) - self._bar.n)

    def looked(self, line: Mapping[str, Any]) -> None:
        verdict = ", the least so far" if line["is_best"] else ""
        told = f"after {line['examples']} examples: held-out loss {line['held_out_loss']:.4f}{verdict}"
        tqdm.write(f"ostraka: {told}", file=sys.stderr)


@contextmanager
def stop_on_signal() -> Iterator[Callable[[], bool]]:
    """A first Ctrl-C or SIGTERM asks to stop after the step; a second does what it always did."""
    asked: list[int] = []
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def ask(number: int, _frame: object) -> None:
        asked.append(number)
        for each, handler in before.items():
            signal.signal(each, handler)

    for number in before:
        signal.signal(number, ask)
    try:
        yield lambda: bool(asked)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
