"""An adapter's file: what training changed of a checkpoint, small enough to ship, in the safetensors form.

    blk.0.attn_q.weight.lora_a   int8 [rank, in]     and .lora_a_scale, float32 [rank]
    blk.0.attn_q.weight.lora_b   int8 [out, rank]    and .lora_b_scale, float32 [out]
    blk.0.attn_norm.weight       float32, in the place of the checkpoint's own; so ffn_norm and output_norm
    answers                      float32 [2, hidden], the head's rows for (no, yes)

It is numbers and one JSON text of metadata: nothing in it can be executed. What it is added to, and how: adapter.py.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ostraka_shared.errors import SourceRefused, UnknownArchitecture
from ostraka_shared.model_folder import hash_file
from ostraka_worker.build.decoder import Config, Shape, Tensor, expected_shapes
from ostraka_worker.build.safetensors_files import Writable, is_whole, read_contents, write_file
from ostraka_worker.build.stored_tensors import StoredTensors

FORMAT = "ostraka-adapter-1"
ANSWERS = "answers"
OUTPUT_NORM = "output_norm.weight"
_NORMS = ("attn_norm.weight", "ffn_norm.weight")
_RECORD = "record"


@dataclass(frozen=True, slots=True)
class AdapterRecord:
    """`layers` of the checkpoint are kept, the first ones. `base_sha256` is the checkpoint's `sha256` of its source;
    `no` and `yes` are the answers' texts; `training` says how it was made, for people."""

    name: str
    base_sha256: str
    layers: int
    rank: int
    no: str
    yes: str
    training: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Changes:
    """In full precision. `low_rank`: the (A [rank, in], B [out, rank]) of each linear's weight, to which B A is added;
    `gains`: each norm's; `answers`: the head's rows for (no, yes), by whose scale the margin is calibrated."""

    low_rank: Mapping[str, tuple[Tensor, Tensor]]
    gains: Mapping[str, Tensor]
    answers: Tensor


@dataclass(frozen=True, slots=True)
class Adapter:
    """`tensors` are read, and checked to be numbers, each time they are asked for; int8 ones without their scales."""

    path: Path
    sha256: str
    record: AdapterRecord
    tensors: StoredTensors
    shapes: Mapping[str, Shape]

    @property
    def source(self) -> dict[str, str]:
        """What model.json says of it."""
        return {"adapter": self.path.name, "adapter_sha256": self.sha256}

    def low_rank(self, name: str) -> tuple[Tensor, Tensor]:
        """(A [rank, in], B [out, rank]) of a linear's weight."""
        read = self.tensors
        scaled = (read[f"{name}.{half}"] * read[f"{name}.{half}_scale"][:, None] for half in ("lora_a", "lora_b"))
        a, b = scaled
        return a, b

    def changes(self) -> Changes:
        """All of it: several times the file's size."""
        names = [name.removesuffix(".lora_a") for name in self.shapes if name.endswith(".lora_a")]
        gains = {name: self.tensors[name] for name in self.shapes if name.endswith("norm.weight")}
        return Changes({name: self.low_rank(name) for name in names}, gains, self.tensors[ANSWERS])


def adapted_linears(config: Config) -> dict[str, Shape]:
    """The weights an adapter changes by a product of low rank: every linear layer's."""
    shapes = expected_shapes(config)
    return {name: shape for name, shape in shapes.items() if name.startswith("blk.") and len(shape) == 2}


def adapted_norms(config: Config) -> list[str]:
    """The gains an adapter replaces. Those of qwen3's heads stay as they are."""
    return [f"blk.{index}.{name}" for index in range(config.layers) for name in _NORMS] + [OUTPUT_NORM]


def stored_shapes(config: Config, rank: int) -> dict[str, Shape]:
    """All the tensors of an adapter's file for a model of `config`."""
    shapes: dict[str, Shape] = dict.fromkeys(adapted_norms(config), (config.hidden,))
    shapes[ANSWERS] = (2, config.hidden)
    for name, (outputs, inputs) in adapted_linears(config).items():
        shapes |= {f"{name}.lora_a": (rank, inputs), f"{name}.lora_a_scale": (rank,)}
        shapes |= {f"{name}.lora_b": (outputs, rank), f"{name}.lora_b_scale": (outputs,)}
    return shapes


def write_adapter(path: Path, record: AdapterRecord, changes: Changes) -> None:
    tensors: dict[str, Writable] = {}
    for name, (a, b) in changes.low_rank.items():
        for half, values in (("lora_a", a), ("lora_b", b)):
            rounded, scale = round_rows(values)
            tensors |= {f"{name}.{half}": rounded, f"{name}.{half}_scale": scale}
    tensors |= {name: gain.astype(np.float32) for name, gain in changes.gains.items()}
    tensors[ANSWERS] = changes.answers.astype(np.float32)
    fields = {name: getattr(record, name) for name in AdapterRecord.__slots__}
    write_file(path, tensors, {"format": FORMAT, _RECORD: json.dumps(fields, ensure_ascii=False)})


def round_rows(values: Tensor) -> tuple[npt.NDArray[np.int8], Tensor]:
    """Each row to 8 bits with a scale of its own: of random rows, the change they make is off by 1 % of itself."""
    scale = np.maximum(np.abs(values).max(axis=1) / np.float32(127), np.finfo(np.float32).tiny).astype(np.float32)
    return np.rint(values / scale[:, None]).astype(np.int8), scale


def read_adapter(path: Path) -> Adapter:
    """Raises SourceRefused."""
    if not path.is_file():
        raise SourceRefused(f"there is no file {path}")
    try:
        contents = read_contents(path, ("I8", "F32"))
    except UnknownArchitecture as bad:
        raise SourceRefused(f"{path} is not an adapter: {bad}") from bad
    if contents.metadata.get("format") != FORMAT:
        raise SourceRefused(f"{path} is not an adapter of the form {FORMAT}: `ostraka model tune` makes them")
    if not is_whole(path, contents):
        raise SourceRefused(f"{path} was altered since it was written: fetch it again")
    record = _read_record(path, contents.metadata)
    shapes = {name: place.shape for name, place in contents.places.items()}
    return Adapter(path, hash_file(path), record, StoredTensors(contents.places, lambda _, tensor: tensor), shapes)


def _read_record(path: Path, metadata: Mapping[str, Any]) -> AdapterRecord:
    try:
        record = AdapterRecord(**json.loads(metadata[_RECORD]))
        # Half a surrogate pair is a text for JSON, and for nobody that is to write it.
        texts = [text.encode() for text in (record.name, record.base_sha256, record.no, record.yes)]
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as bad:
        raise SourceRefused(f"{path} does not describe an adapter ({bad}): fetch it again") from bad
    counts = (record.layers, record.rank)
    if not all(texts) or not all(type(count) is int and count > 0 for count in counts):
        raise SourceRefused(f"{path} does not describe an adapter (of {counts} layers and ranks): fetch it again")
    return record
