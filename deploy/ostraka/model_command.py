"""`ostraka model build|list|verify|tune`: what a person does with model folders."""

import argparse
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from tokenizers import Tokenizer

from ostraka import tune_command
from ostraka.interrupts import EXIT_INTERRUPTED, ending_in_order
from ostraka.model_options import add_cache_dir, find_cache_dir, flag_name, folder_name
from ostraka_shared.errors import ConfigError, EngineFailed, ModelDamaged, ModelError
from ostraka_shared.model_folder import ModelFolder, open_folder, verify_folder
from ostraka_shared.setting_sources import refuse_unused
from ostraka_worker.build.adapter_file import read_adapter
from ostraka_worker.build.builder import FORMS, Form, build_adapted, build_embedded, build_source, refuse_other
from ostraka_worker.build.catalog import DEFAULT_PRECISION, EMBEDDED_NAME, PRECISIONS, model_path, models_dir
from ostraka_worker.build.progress import for_stderr
from ostraka_worker.engine import Line
from ostraka_worker.kernels import best_graph
from ostraka_worker.onnx_engine import OnnxEngine

DEFAULT_FORM = next(iter(FORMS))
PROBE = "<evidence>\nThe shop is open.\n</evidence>\n\nQuestion: Is the shop open?\nAnswer:"


def register(parser: argparse.ArgumentParser) -> None:
    commands = parser.add_subparsers(dest="model_command", required=True, metavar="build|list|verify|tune")
    _register_build(commands.add_parser("build", help="build a model folder; the embedded model without SOURCE"))
    tune_command.register(commands.add_parser("tune", help="teach a model to decide on labelled examples of yours"))
    listing = commands.add_parser("list", help="the model folders in the cache")
    add_cache_dir(listing)
    verify = commands.add_parser(
        "verify", help="hash a model folder's files, load what would be served here, and ask it"
    )
    verify.add_argument("folder", nargs="?", type=Path, metavar="DIR", help="default: the embedded model's folder")
    add_cache_dir(verify)


def run(args: argparse.Namespace) -> int:
    commands = {"build": _build, "list": _list, "verify": _verify, "tune": tune_command.run}
    try:
        with ending_in_order(signal.SIGTERM, signal.SIGHUP):
            return commands[args.model_command](args)
    except KeyboardInterrupt:
        sys.stderr.write("ostraka: interrupted; nothing half-made was kept\n")
        return EXIT_INTERRUPTED


def _register_build(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "source",
        nargs="?",
        type=Path,
        metavar="SOURCE",
        help="a GGUF file, or a folder with config.json and safetensors",
    )
    parser.add_argument("--precision", choices=PRECISIONS, default=DEFAULT_PRECISION, help="default: %(default)s")
    parser.add_argument("--name", type=flag_name, help="default: the source's file name")
    parser.add_argument("--output", type=Path, metavar="DIR", help="default: models/NAME-PRECISION in the cache")
    parser.add_argument(
        "--form",
        choices=FORMS,
        help=f"evidence: SOURCE was tuned to decide, and answers 0 or 1; yes-no: it was not; default: {DEFAULT_FORM}",
    )
    parser.add_argument(
        "--answers",
        nargs=2,
        metavar=("NO", "YES"),
        help="the two single tokens SOURCE answers with; default: the form's",
    )
    parser.add_argument(
        "--adapter",
        type=Path,
        metavar="FILE",
        help="what `ostraka model tune` made for SOURCE, or for the embedded model's checkpoint",
    )
    add_cache_dir(parser)


def _build(args: argparse.Namespace) -> int:
    if (args.answers or args.form) and (args.adapter or not args.source):
        raise ConfigError("--form and --answers need a SOURCE, and no --adapter: how other models are asked is fixed")
    if args.source and args.output:
        refuse_unused(args, "with a SOURCE and --output", "--cache-dir")
    if args.answers:
        refuse_unused(args, "beside --answers", "--form")
    cache_dir = find_cache_dir(args)
    try:
        print((_build_adapted if args.adapter else _build_plain)(args, cache_dir).path)
    except OSError as bad:
        if not _is_about(bad, cache_dir):
            raise
        raise ConfigError(f"--cache-dir (or OSTRAKA_CACHE_DIR) {cache_dir}: {bad.filename}: {bad.strerror}") from bad
    return 0


def _is_about(bad: OSError, cache_dir: Path) -> bool:
    """Also a parent of it that could not be made."""
    place = Path(bad.filename) if isinstance(bad.filename, str) else None
    return place is not None and (place.is_relative_to(cache_dir) or cache_dir.is_relative_to(place))


def _build_plain(args: argparse.Namespace, cache_dir: Path) -> ModelFolder:
    name: str = args.name or (_source_name(args.source) if args.source else EMBEDDED_NAME)
    target = _target(args, cache_dir, name)
    if not args.source:
        return build_embedded(cache_dir, target, args.precision, for_stderr(), name)
    form = Form(*args.answers) if args.answers else FORMS[args.form or DEFAULT_FORM]
    return build_source(args.source, target, name, args.precision, form, for_stderr())


def _build_adapted(args: argparse.Namespace, cache_dir: Path) -> ModelFolder:
    adapter = read_adapter(args.adapter)
    name: str = args.name or folder_name(adapter.record.name)
    target = _target(args, cache_dir, name)
    if args.source:
        return build_adapted(adapter, args.source, target, name, args.precision, for_stderr())
    return build_embedded(cache_dir, target, args.precision, for_stderr(), name, adapter)


def _target(args: argparse.Namespace, cache_dir: Path, name: str) -> Path:
    """Refused before anything is read, if it is no place for a model."""
    target: Path = args.output or model_path(cache_dir, name, args.precision)
    refuse_other(target, name)
    return target


def _list(args: argparse.Namespace) -> int:
    lines = list(_described(models_dir(find_cache_dir(args))))
    for line in lines:
        print(line)
    if not lines:
        sys.stderr.write("ostraka: no models yet: build one with `ostraka model build`\n")
    return 0


def _described(models: Path) -> Iterator[str]:
    # A name that begins with a dot is a build under way, or what a killed one left.
    for path in sorted(models.glob("[!.]*")):
        try:
            folder = open_folder(path)
        except ModelError as bad:
            yield f"{path.name:32} {bad}"
            continue
        megabytes = _size_bytes(folder) / 1e6
        yield f"{path.name:32} {folder.spec.precision:5} {megabytes:7.0f} MB  {folder.fingerprint[:12]}  {path}"


def _verify(args: argparse.Namespace) -> int:
    if args.folder:
        refuse_unused(args, "with a DIR", "--cache-dir")
    folder = open_folder(args.folder or model_path(find_cache_dir(args), EMBEDDED_NAME, DEFAULT_PRECISION))
    progress = for_stderr()
    progress.begin(f"hashing {folder.path}", _size_bytes(folder), "B")
    try:
        verify_folder(folder, progress.advance)
    finally:
        progress.end()
    served = best_graph(folder.graph, folder.hashes)
    for graph in dict.fromkeys([served, folder.graph]):  # the plain one is what any other machine falls back to
        if not np.isfinite(_probe(folder, graph)).all():
            raise EngineFailed(f"{graph} answers with no number: build the model again")
    print(
        f"{folder.path} is whole: {len(folder.hashes)} files, fingerprint {folder.fingerprint}; "
        f"served here by {served.name}"
    )
    return 0


def _probe(folder: ModelFolder, graph: Path) -> np.ndarray:
    try:
        tokenizer = Tokenizer.from_file(str(folder.tokenizer))
    except Exception as bad:  # the package raises bare Exception
        raise ModelDamaged(f"{folder.tokenizer} is not a tokenizer ({bad}): build the model again") from bad
    ids = tokenizer.encode(folder.spec.contract.bos + PROBE, add_special_tokens=False).ids
    return OnnxEngine(graph).run([Line(np.array(ids, np.uint32))])


def _size_bytes(folder: ModelFolder) -> int:
    return sum((folder.path / name).stat().st_size for name in folder.hashes)


def _source_name(source: Path) -> str:
    """A folder's name may have dots of its own."""
    return folder_name(source.stem if source.is_file() else source.resolve().name)
