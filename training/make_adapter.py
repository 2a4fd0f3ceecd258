"""A PyTorch state dict of low-rank changes as an adapter's file, its margins calibrated by a temperature.

    python -m training.make_adapter STATE.pt --temperature 1.3 --output ostraka-135m.safetensors [--record RECORD.json]

The state has for each layer i and linear L `p.i_L_A` [rank, in] and `p.i_L_B` [out, rank]; the gains `p.i_attn_norm`,
`p.i_ffn_norm` and `p.out_norm`; and `head` [2, hidden], the rows for no and yes. It is of the embedded model's
checkpoint unless --base-sha256 says otherwise. What 8 bits do to the changes is printed.
"""

import argparse
import json
import re
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from ostraka_shared.model_folder import hash_file
from ostraka_worker.build.adapter_file import OUTPUT_NORM, AdapterRecord, Changes, read_adapter, write_adapter
from ostraka_worker.build.catalog import EMBEDDED_ANSWERS
from ostraka_worker.build.embedded import EMBEDDED

State = Mapping[str, np.ndarray]
_LOW = re.compile(r"p\.(\d+)_(\w+)_A")
_GAIN = re.compile(r"p\.(\d+)_(attn_norm|ffn_norm)")


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m training.make_adapter",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("state", type=Path)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--name", default="ostraka-135m", help="what the model is served as (default: %(default)s)")
    parser.add_argument("--temperature", type=float, default=1.0, help="what margins are divided by")
    parser.add_argument("--base-sha256", default=EMBEDDED.sha256)
    parser.add_argument("--record", type=Path, help="a JSON object that says how it was trained")
    values = parser.parse_args()
    training = json.loads(values.record.read_text(encoding="utf-8")) if values.record else {}
    changes = changes_of(read_state(values.state), values.temperature)
    record = describe(values.name, values.base_sha256, changes, {"temperature": values.temperature} | training)
    write_adapter(values.output, record, changes)
    errors = rounding_errors(changes, read_adapter(values.output).changes())
    worst = max(errors, key=errors.__getitem__)
    size = values.output.stat().st_size
    print(f"{values.output}: {size / 1e6:.2f} MB, {record.layers} layers, rank {record.rank}")
    print(f"sha256 {hash_file(values.output)}")
    mean = np.mean([*errors.values()])
    print(f"8 bits change the changes by {mean:.4f} of themselves, most {errors[worst]:.4f} ({worst})")


def read_state(path: Path) -> dict[str, np.ndarray]:
    """Nothing in the file is executed."""
    import torch  # noqa: PLC0415  the extra `tune`, for this one file format

    state = torch.load(path, map_location="cpu", weights_only=True)
    return {name: tensor.float().numpy() for name, tensor in state.items()}


def changes_of(state: State, temperature: float) -> Changes:
    """Raises ValueError where the state lacks a part. The temperature goes into the answers' rows."""
    low_rank, gains = {}, {}
    for name, tensor in state.items():
        if low := _LOW.fullmatch(name):
            low_rank[f"blk.{low[1]}.{low[2]}.weight"] = (tensor, state[f"{name[:-1]}B"])
        elif gain := _GAIN.fullmatch(name):
            gains[f"blk.{gain[1]}.{gain[2]}.weight"] = tensor
        elif name not in ("p.out_norm", "head") and not name.endswith("_B"):
            raise ValueError(f"{name} is no part of an adapter")
    gains[OUTPUT_NORM] = state["p.out_norm"]
    return Changes(low_rank, gains, state["head"] / np.float32(temperature))


def describe(name: str, base_sha256: str, changes: Changes, training: dict[str, object]) -> AdapterRecord:
    layers = 1 + max(int(linear.split(".")[1]) for linear in changes.low_rank)
    ranks = {len(a) for a, _ in changes.low_rank.values()}
    if len(ranks) != 1:
        raise ValueError(f"the linears have the ranks {sorted(ranks)}, where one is expected")
    return AdapterRecord(name, base_sha256, layers, ranks.pop(), *EMBEDDED_ANSWERS, training)


def rounding_errors(exact: Changes, stored: Changes) -> dict[str, float]:
    """Of each linear: how far what is stored changes it from what was trained, as a part of the change."""
    errors = {}
    for name, (a, b) in exact.low_rank.items():
        stored_a, stored_b = stored.low_rank[name]
        change = b @ a
        errors[name] = float(np.linalg.norm(stored_b @ stored_a - change) / max(np.linalg.norm(change), 1e-30))
    return errors


if __name__ == "__main__":
    main()
