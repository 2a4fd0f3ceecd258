"""From what was learned to what is served: the temperature, the adapter's file, the model folder, how good it is."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from ostraka.answerers import LocalModel
from ostraka.evaluation.asking import ask
from ostraka.evaluation.examples import Prediction
from ostraka.evaluation.report import Report, build_comparison, build_report
from ostraka.evaluation.tables import describe_comparison, describe_report
from ostraka.tuning.held_out import HeldOut
from ostraka.tuning.kept_state import Place
from ostraka.tuning.losses import fit_temperature, mean_loss
from ostraka.tuning.network import Network
from ostraka.tuning.parameters import changes_of
from ostraka.tuning.settings import TuneSettings
from ostraka.tuning.start import Start, Wanted, build_tuned
from ostraka_gateway.served_model import ServedModel
from ostraka_shared.model_folder import ModelFolder
from ostraka_worker.build.adapter_file import Adapter, read_adapter, write_adapter
from ostraka_worker.build.progress import Progress
from ostraka_worker.config import DEFAULT_BATCH_TOKENS

REPORT_FILE = "report.json"


@dataclass(frozen=True, slots=True)
class Outcome:
    """`network` with the best parameters; `place` where the tuning ended."""

    settings: TuneSettings
    wanted: Wanted
    start: Start
    network: Network
    held_out: HeldOut
    place: Place


def finish(outcome: Outcome, progress: Progress) -> ModelFolder:
    """Prints how the held-out examples were answered before and after."""
    settings = outcome.settings
    adapter = _write_adapter(outcome)
    folder = build_tuned(outcome.wanted, adapter, settings.output, settings.precision, progress)
    before = outcome.held_out.predictions(np.array(outcome.place.before))
    told = ask(LocalModel(ServedModel(folder), settings.threads, DEFAULT_BATCH_TOKENS), outcome.held_out.examples)
    pairs = [(old, new) for old, new in zip(before, told, strict=True) if isinstance(new, Prediction)]
    reports = {name: build_report([pair[side] for pair in pairs]) for side, name in enumerate(("before", "after"))}
    comparison = build_comparison(pairs)
    for name, report in reports.items():
        print(f"== {name}, {len(pairs)} held-out examples\n\n{describe_report(report)}\n")
    print(f"== after against before\n\n{describe_comparison(comparison)}\n")
    _write_report(settings.work / REPORT_FILE, adapter.record.training, reports, comparison)
    return folder


def _write_adapter(outcome: Outcome) -> Adapter:
    settings, held_out = outcome.settings, outcome.held_out
    margins = held_out.margins(outcome.network)
    temperature = fit_temperature(margins, held_out.asked)
    parameters = {name: value.detach().numpy() for name, value in outcome.network.parameters.items()}
    training = _describe(outcome, temperature, mean_loss(margins / temperature, held_out.asked))
    record = replace(outcome.start.record, name=settings.name, training=training)
    # Named by the model: model.json tells of it, and its place may change.
    path = settings.work / f"{settings.name}.safetensors"
    write_adapter(path, record, changes_of(parameters, outcome.start.config, temperature))
    return read_adapter(path)


def _describe(outcome: Outcome, temperature: float, loss: float) -> dict[str, Any]:
    settings, place = outcome.settings, outcome.place
    return {
        "data": [Path(path).name for path in settings.data],
        "data_sha256": place.asked["data"],
        "started_from": outcome.start.source,
        "seed": settings.seed,
        "learning_rate": place.asked["learning_rate"],
        "steps": place.step,
        "examples": place.examples,
        "tokens": place.tokens,
        "elapsed_s": round(place.elapsed_s, 1),
        "held_out_examples": len(outcome.held_out.examples),
        "held_out_loss": round(loss, 5),
        "temperature": round(temperature, 4),
    }


def _write_report(path: Path, training: Mapping[str, Any], reports: Mapping[str, Report], comparison: Report) -> None:
    whole = {"training": training, "reports": reports, "comparison": comparison}
    path.write_text(json.dumps(whole, ensure_ascii=False, indent=1, allow_nan=False) + "\n", encoding="utf-8")
