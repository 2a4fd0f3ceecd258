"""`python -m training.own_data`: writes own_train.jsonl.gz and own_heldout.jsonl.gz; prints what guessing reaches."""

import argparse
import gzip
import json
from pathlib import Path
from random import Random

from training.own_data.baseline import artefacts
from training.own_data.compose import compose
from training.own_data.fragments import Fragments
from training.own_data.kinds import KINDS
from training.own_data.scenario import Example

FOLDER = Path(__file__).parent
SEED = 20
HELDOUT_PER_KIND = 80
SOURCE = "ostraka_own"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m training.own_data", description=__doc__)
    parser.add_argument("--output", type=Path, default=FOLDER, metavar="DIR", help="where the two files go")
    output: Path = parser.parse_args().output
    print(
        f"{'kind':14}{'train':>7}{'heldout':>9}{'noul':>7}{'choice':>8}{'score':>7}"
        f"{'yes':>7}{'question alone':>16}{'state alone':>13}"
    )
    splits: dict[str, list[Example]] = {"train": [], "heldout": []}
    for kind, (_, count) in KINDS.items():
        train, groups = _make(kind, count, heldout=False)
        heldout, _ = _make(kind, HELDOUT_PER_KIND, heldout=True)
        splits["train"] += train
        splits["heldout"] += heldout
        _report(kind, train, groups, len(heldout))
    for split, examples in splits.items():
        Random(SEED).shuffle(examples)
        _write(output / f"own_{split}.jsonl.gz", examples)
        print(split, len(examples))


def _make(kind: str, count: int, *, heldout: bool) -> tuple[list[Example], list[int]]:
    """(examples, the scenario of each). Scenarios that repeat an example are left out whole, to keep the balance."""
    make, _ = KINDS[kind]
    rng = Random(f"{SEED} {kind} {heldout}")
    fragments = Fragments(kind, heldout=heldout)
    examples: list[Example] = []
    groups: list[int] = []
    seen: set[str] = set()
    for group, scenario in enumerate(make(fragments, rng, heldout=heldout)):
        own = [one | {"source": SOURCE} for one in compose(kind, scenario, fragments, rng)]
        keys = [json.dumps([one["state"], one["question"]]) for one in own]
        if seen.isdisjoint(keys) and len(set(keys)) == len(keys):
            seen.update(keys)
            examples += own
            groups += [group] * len(own)
        if len(examples) >= count or group > 50 * count:
            return examples, groups
    raise AssertionError("scenarios do not end")


def _report(kind: str, examples: list[Example], groups: list[int], heldout: int) -> None:
    of = {
        form: [place for place, one in enumerate(examples) if one["type"] == form]
        for form in ("noul", "choice", "score")
    }
    noul = [examples[place] for place in of["noul"]]
    yes = sum(bool(one["label"]) for one in noul) / len(noul)
    question, state = artefacts(noul, [groups[place] for place in of["noul"]])
    counts = "".join(f"{len(of[form]):{width}}" for form, width in (("noul", 7), ("choice", 8), ("score", 7)))
    print(f"{kind:14}{len(examples):7}{heldout:9}{counts}{yes:7.2f}{question:16.2f}{state:13.2f}", flush=True)


def _write(path: Path, examples: list[Example]) -> None:
    """Without a time stamp, so that the same fragments give the same bytes."""
    lines = "".join(json.dumps(example, ensure_ascii=False) + "\n" for example in examples)
    part = path.with_suffix(".part")
    part.write_bytes(gzip.compress(lines.encode(), mtime=0))
    part.replace(path)


if __name__ == "__main__":
    main()
