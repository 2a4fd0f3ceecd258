"""Writes transformers_logits.json: what `transformers` makes of the very checkpoints that the tests write.

    pip install torch transformers
    python -m tests.unit.worker.build.record_transformers

Not a test dependency: the two take gigabytes and minutes to install. It also proves that the folders the tests write
are such as `transformers` reads.
"""

import importlib
import json
import sys
import tempfile
from pathlib import Path

import numpy as np

from tests.unit.worker.build.forms import FORMS, random_tensors, write_folder

RECORDED = Path(__file__).with_name("transformers_logits.json")


def main() -> int:
    torch, transformers = importlib.import_module("torch"), importlib.import_module("transformers")
    recorded: dict[str, object] = {
        "versions": [f"torch {torch.__version__}", f"transformers {transformers.__version__}"]
    }
    for name, form in FORMS.items():
        ids = np.random.default_rng(3).integers(0, len(form.pieces), 40).tolist()
        with tempfile.TemporaryDirectory() as place:
            folder = write_folder(Path(place) / name, form, random_tensors(form), "BF16", shards=3)
            model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float64)
        with torch.no_grad():
            logits = model(torch.tensor([ids])).logits[0, -1].numpy()
        recorded[name] = {"ids": ids, "logits": [round(float(each), 6) for each in logits[:24]]}
    RECORDED.write_text(json.dumps(recorded) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
