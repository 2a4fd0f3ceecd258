"""The model folder: what the builder writes and everyone else reads.

    model.json        ModelSpec: name, architecture, prompt contract, answer tokens, precision, source
    model.onnx        the graph; its weights lie beside it in model.onnx.data
    tokenizer.json    in the form of the `tokenizers` package
    SHA256SUMS        one line a file, as `sha256sum` writes it, sorted by name; its own SHA-256 is the fingerprint

It knows nothing of ONNX, GGUF or tokens.
"""

import hashlib
import json
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any, NewType, TypeVar

from ostraka_shared.errors import ModelDamaged, ModelMissing

_T = TypeVar("_T")

SPEC_FILE = "model.json"
GRAPH_FILE = "model.onnx"
WEIGHTS_FILE = "model.onnx.data"
TOKENIZER_FILE = "tokenizer.json"
SUMS_FILE = "SHA256SUMS"

Fingerprint = NewType("Fingerprint", str)
FileStates = tuple[tuple[int, ...], ...]

# By engine, what it reads: whatever else a folder holds is loaded only if it is listed.
ENGINE_FILES = {"onnx": (GRAPH_FILE, WEIGHTS_FILE), "fake": ()}
# Far above any model there is; what a worker sets aside grows with it.
MOST_CONTEXT_TOKENS = 1 << 20
MOST_TOKEN_ID = (1 << 32) - 1


@dataclass(frozen=True, slots=True)
class PromptContract:
    """How this model is asked. `bos` opens every prompt, or is empty; P(yes) reads the logits of two single tokens
    after it."""

    bos: str
    no: str
    yes: str


@dataclass(frozen=True, slots=True)
class ModelSpec:
    """The content of model.json.

    `answer_token_ids` are (no, yes). `precision` is "fp32" or "int8". `source` names where the weights came from and
    their SHA-256. `check` has the bounds the builder held the graph to, against its reference forward pass; what it
    measured varies with the CPU, and lies beside in check.json. `engine` is "onnx", or "fake" for the protocol tests'
    double, whose behaviour `fake` then describes.
    """

    name: str
    architecture: str
    precision: str
    context_tokens: int
    contract: PromptContract
    answer_token_ids: tuple[int, int]
    builder_version: str
    source: dict[str, str] = field(default_factory=dict)
    check: dict[str, float] = field(default_factory=dict)
    engine: str = "onnx"
    fake: dict[str, Any] = field(default_factory=dict)

    def to_json(self) -> str:
        return json.dumps(asdict(self), indent=2, ensure_ascii=False) + "\n"

    @classmethod
    def from_json(cls, text: str) -> "ModelSpec":
        """Raises ValueError, KeyError, TypeError or RecursionError where the text is not a ModelSpec."""
        raw = json.loads(text)
        unknown = set(raw) - {f.name for f in fields(cls)}
        if unknown:
            raise ValueError(f"unknown keys {sorted(unknown)}")
        raw["contract"] = PromptContract(**raw["contract"])
        no_id, yes_id = raw["answer_token_ids"]
        raw["answer_token_ids"] = (no_id, yes_id)
        spec = cls(**raw)
        _refuse_wrong_types(spec)
        return spec


@dataclass(frozen=True, slots=True)
class ModelFolder:
    """An opened folder. `hashes` maps file name to SHA-256 hex, sorted by name, as recorded when it was built.
    `front`: where its small files are read from, if not from there. `seal`: that of its files when they were hashed and
    right; empty where nobody has yet."""

    path: Path
    spec: ModelSpec
    hashes: dict[str, str]
    fingerprint: Fingerprint
    front: Path | None = None
    seal: str = field(default="", compare=False)

    @property
    def graph(self) -> Path:
        return self.path / GRAPH_FILE

    @property
    def tokenizer(self) -> Path:
        return (self.front or self.path) / TOKENIZER_FILE


def open_folder(path: Path, *, is_whole: bool = True) -> ModelFolder:
    """Reads model.json and SHA256SUMS, not the weights. Raises ModelMissing or ModelDamaged."""
    spec_path = path / SPEC_FILE
    if not spec_path.is_file():
        raise ModelMissing(f"no model folder at {path}: build one with `ostraka model build`")
    try:
        spec = ModelSpec.from_json(spec_path.read_text(encoding="utf-8"))
    except (ValueError, KeyError, TypeError, RecursionError, OSError) as bad:
        raise ModelDamaged(f"{spec_path} is not a model description ({bad}): build the model again") from bad
    sums = path / SUMS_FILE
    if not sums.is_file():
        raise ModelDamaged(f"{sums} is missing: build the model again")
    text = sums.read_text(encoding="utf-8", errors="replace")
    hashes = dict(_parse_sums(text))
    for name in (SPEC_FILE, TOKENIZER_FILE, *ENGINE_FILES[spec.engine]):
        if name not in hashes:  # cut short, it would not verify them
            raise ModelDamaged(f"{sums} does not list {name}: build the model again")
    for name in hashes if is_whole else ():
        if not (path / name).is_file():
            raise ModelDamaged(f"{path / name} is missing: build the model again")
    return ModelFolder(path, spec, hashes, Fingerprint(hashlib.sha256(text.encode()).hexdigest()))


def verify_folder(folder: ModelFolder, advance: Callable[[int], None] = lambda _: None) -> None:
    """Hashes every file and compares. `advance(n)` is told of each n bytes read. Raises ModelDamaged."""
    for name, expected in folder.hashes.items():
        if hash_file(folder.path / name, advance) != expected:
            raise ModelDamaged(f"{folder.path / name} was altered since it was built: build the model again")


def verified(folder: ModelFolder) -> ModelFolder:
    """With its seal. What was hashed under the same one is not hashed again. Raises ModelDamaged."""
    seal = seal_of(file_states(folder))
    if seal != folder.seal:
        verify_folder(folder)
    return replace(folder, seal=seal)


def seal_of(states: FileStates) -> str:
    """To tell another process how the files were."""
    return hashlib.sha256(repr(states).encode()).hexdigest()


def file_states(folder: ModelFolder) -> FileStates:
    """Of every file, what changes when it is written to or replaced. Costs microseconds, where hashing takes a second.

    Taken before the files are hashed, and equal later, it says that they still are what was hashed. A write within the
    same tick of the kernel's clock (4 ms) would not show. Raises ModelDamaged where a file is gone.
    """
    states = []
    for name in sorted([*folder.hashes, SUMS_FILE]):
        try:
            found = (folder.path / name).stat()
        except OSError as bad:
            raise ModelDamaged(f"{folder.path / name} cannot be read ({bad.strerror}): build the model again") from bad
        states.append((found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns))
    return tuple(states)


def write_sums(path: Path) -> None:
    """Records the hash of every file in the folder. Called once, by the builder, as its last step."""
    names = sorted(entry.name for entry in path.iterdir() if entry.name != SUMS_FILE)
    text = "".join(f"{hash_file(path / name)}  {name}\n" for name in names)
    (path / SUMS_FILE).write_text(text, encoding="utf-8")


def hash_file(path: Path, advance: Callable[[int], None] = lambda _: None) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(1 << 20):
            digest.update(chunk)
            advance(len(chunk))
    return digest.hexdigest()


def _refuse_wrong_types(spec: ModelSpec) -> None:
    """Raises TypeError or ValueError. JSON has its own ideas of types, and whoever reads a spec trusts ours."""
    named = {name: getattr(spec, name) for name in ("name", "architecture", "precision", "builder_version", "engine")}
    for name, value in {**named, **asdict(spec.contract), **_of_type(spec.source, dict, "source")}.items():
        # Half a surrogate pair is a text for JSON, and for nobody that is to write it.
        _of_type(value, str, name).encode()
    for name, value in _of_type(spec.check, dict, "check").items():
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise TypeError(f"{name} is no number")
    _of_type(spec.fake, dict, "fake")
    if spec.engine not in ENGINE_FILES:
        raise ValueError(f"{spec.engine!r} is no engine of this version")
    numbers = [("context_tokens", spec.context_tokens, 1, MOST_CONTEXT_TOKENS)]
    numbers += [("answer_token_ids", token_id, 0, MOST_TOKEN_ID) for token_id in spec.answer_token_ids]
    for name, number, least, most in numbers:
        if type(number) is not int or not least <= number <= most:
            raise ValueError(f"{name} must be whole numbers of {least} to {most}")


def _of_type(value: Any, kind: type[_T], name: str) -> _T:
    if not isinstance(value, kind):
        raise TypeError(f"{name} is a {type(value).__name__}, where a {kind.__name__} is expected")
    return value


def _parse_sums(text: str) -> Iterator[tuple[str, str]]:
    for line in text.splitlines():
        digest, _, name = line.partition("  ")
        if len(digest) != 64 or not name or "/" in name:
            raise ModelDamaged(f"{SUMS_FILE} has a line that is not `<sha256>  <file>`: build the model again")
        yield name, digest
