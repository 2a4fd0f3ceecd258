"""Safetensors files: where the tensors of a folder's lie, in one file or in shards; and one of our own, written.
Nothing in them is executed.

Read by hand, because the package of that name has no bfloat16 without torch.
"""

import hashlib
import json
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ostraka_shared.errors import SourceRefused, UnknownArchitecture
from ostraka_worker.build.bfloat16 import widened
from ostraka_worker.build.decoder import Tensor
from ostraka_worker.build.settings import read_json
from ostraka_worker.build.stored_tensors import Bytes, StoredTensor

WHOLE = "model.safetensors"
INDEX = "model.safetensors.index.json"
# The format's own limit, so that a damaged length is not taken for a head of many gigabytes.
MOST_HEAD_BYTES = 100_000_000
DTYPES = ("F32", "F16", "BF16")
CONTENT_HASH = "content_sha256"

Writable = Tensor | npt.NDArray[np.int8]


@dataclass(frozen=True, slots=True)
class Contents:
    """Of one file: what is said of it, where its tensors lie, and the byte that the first of them begins at."""

    metadata: dict[str, Any]
    places: dict[str, StoredTensor]
    start: int


def tensor_files(folder: Path) -> list[Path]:
    """The files that hold the tensors, sorted. Raises SourceRefused."""
    if (folder / INDEX).is_file():
        return [folder / name for name in sorted(set(_weight_map(folder).values()))]
    if (folder / WHOLE).is_file():
        return [folder / WHOLE]
    pickled = any(folder.glob("pytorch_model*.bin"))
    hint = "its weights are pickled, and no pickle is ever read: convert them" if pickled else "fetch the whole folder"
    raise SourceRefused(f"there is neither {WHOLE} nor {INDEX} in {folder}: {hint}")


def read_places(folder: Path) -> dict[str, StoredTensor]:
    """Every tensor by its name in the files. Raises SourceRefused or UnknownArchitecture."""
    places: dict[str, StoredTensor] = {}
    files = tensor_files(folder)
    owners = _weight_map(folder) if (folder / INDEX).is_file() else None
    for file in files:
        held = read_contents(file).places
        if owners is not None:
            _hold_against(owners, file, held)
        places |= held
    return places


def _weight_map(folder: Path) -> dict[str, str]:
    path = folder / INDEX
    owners = read_json(path).get("weight_map")
    if not isinstance(owners, dict) or not owners or not all(isinstance(name, str) for name in owners.values()):
        raise SourceRefused(f"{path} has no weight_map from tensors to files: fetch it again")
    for name in set(owners.values()):
        if Path(name).name != name or not name.endswith(".safetensors"):
            raise SourceRefused(f"{path} names {name!r}, which is no safetensors file of its folder: fetch it again")
        if not (folder / name).is_file():
            raise SourceRefused(f"{path} names {name}, which is not there: fetch the whole folder")
    return owners


def _hold_against(owners: dict[str, str], file: Path, held: dict[str, StoredTensor]) -> None:
    listed = {tensor for tensor, owner in owners.items() if owner == file.name}
    if differing := listed ^ held.keys():
        raise SourceRefused(f"{file} and {INDEX} differ about {min(differing)}: they are not of the same checkpoint")


def read_contents(path: Path, dtypes: Sequence[str] = DTYPES) -> Contents:
    """Raises SourceRefused, or UnknownArchitecture for a tensor of another type than `dtypes`."""
    size = path.stat().st_size
    with path.open("rb") as file:
        first = file.read(8)
        (length,) = struct.unpack("<Q", first) if len(first) == 8 else (0,)
        if not 2 <= length <= min(MOST_HEAD_BYTES, size - 8):
            raise SourceRefused(f"{path} is not a readable safetensors file: fetch it again")
        head = _parse(path, file.read(length))
    start = 8 + length
    metadata = head.pop("__metadata__", None)
    places = {name: _place(path, start, name, entry, dtypes) for name, entry in head.items()}
    return Contents(metadata if isinstance(metadata, dict) else {}, places, start)


def _parse(path: Path, raw: bytes) -> dict[str, Any]:
    try:
        head = json.loads(raw)
    except (ValueError, RecursionError) as bad:
        raise SourceRefused(f"{path} is not a readable safetensors file ({bad}): fetch it again") from bad
    if not isinstance(head, dict):
        raise SourceRefused(f"{path} is not a readable safetensors file: fetch it again")
    return head


def _place(path: Path, start: int, name: str, entry: Any, dtypes: Sequence[str]) -> StoredTensor:
    size = path.stat().st_size
    try:
        dtype, shape, (begin, end) = entry["dtype"], entry["shape"], entry["data_offsets"]
        numbers = (*shape, begin, end)
    except (TypeError, KeyError, ValueError) as bad:
        raise SourceRefused(f"{path} describes no tensor as {name}: fetch it again") from bad
    if dtype not in dtypes:
        raise UnknownArchitecture(
            f"cannot build a model with {dtype!r} weights: {name} has them; {', '.join(dtypes)} are read"
        )
    value_bytes, widen = _WIDENINGS[dtype]
    if not shape or not all(type(each) is int and 0 <= each <= size for each in numbers):
        raise SourceRefused(f"{path} describes no tensor as {name}: fetch it again")
    if end - begin != prod(shape) * value_bytes or start + end > size or not prod(shape):
        raise SourceRefused(f"{path} ends before its tensor {name}, or gives it a wrong length: fetch it again")
    row_bytes = shape[-1] * value_bytes
    return StoredTensor(path, start + begin, tuple(shape), row_bytes, widen, in_bf16=dtype == "BF16")


def _f32(raw: Bytes) -> Tensor:
    return raw.view("<f4")


def _f16(raw: Bytes) -> Tensor:
    return raw.view("<f2").astype(np.float32)


def _bf16(raw: Bytes) -> Tensor:
    return widened(raw.view("<u2"))


def _i8(raw: Bytes) -> Tensor:
    return raw.view(np.int8).astype(np.float32)


_WIDENINGS: dict[str, tuple[int, Callable[[Bytes], Tensor]]] = {
    "F32": (4, _f32),
    "F16": (2, _f16),
    "BF16": (2, _bf16),
    "I8": (1, _i8),
}
"""The bytes of a value, and how they become float32."""


def write_file(path: Path, tensors: Mapping[str, Writable], metadata: Mapping[str, str]) -> None:
    """Tensors in order, one behind the other. `metadata` gets the SHA-256 of all of them: see `is_whole`."""
    head: dict[str, Any] = {}
    digest, end = hashlib.sha256(), 0
    for name, tensor in tensors.items():
        digest.update(content := _little_endian(tensor))
        begin, end = end, end + len(content)
        dtype = "I8" if tensor.dtype == np.int8 else "F32"
        head[name] = {"dtype": dtype, "shape": list(tensor.shape), "data_offsets": [begin, end]}
    head["__metadata__"] = dict(metadata) | {CONTENT_HASH: digest.hexdigest()}
    encoded = json.dumps(head).encode()
    encoded += b" " * (-len(encoded) % 8)
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(encoded)) + encoded)
        for tensor in tensors.values():
            file.write(_little_endian(tensor))


def is_whole(path: Path, contents: Contents) -> bool:
    """Whether the tensors are those that `write_file` wrote. Reads all of them."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        file.seek(contents.start)
        while chunk := file.read(1 << 20):
            digest.update(chunk)
    return digest.hexdigest() == contents.metadata.get(CONTENT_HASH)


def _little_endian(tensor: Writable) -> bytes:
    return tensor.tobytes() if tensor.dtype == np.int8 else tensor.astype("<f4").tobytes()
