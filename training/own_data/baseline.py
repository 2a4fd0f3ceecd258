"""What can be guessed without reading both: a logistic regression on the words of the question, or of the state, alone.

numpy only. A kind of question where either guesses well has an artefact a model would learn instead of reading.
"""

import itertools
import json
import re
import zlib
from collections.abc import Sequence

import numpy as np

from training.own_data.scenario import Example

BUCKETS = 1 << 12
FOLDS = 4
STEPS = 150


def words_of(value: object) -> list[str]:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    single = re.findall(r"\w+|[^\w\s]", text.lower())
    return single + [f"{one} {two}" for one, two in itertools.pairwise(single)]


def accuracy(texts: Sequence[object], labels: Sequence[bool], groups: Sequence[int]) -> float:
    """Cross-validated by group, so that a scenario is never on both sides."""
    features = np.zeros((len(texts), BUCKETS), np.float32)
    for row, text in enumerate(texts):
        features[row, [zlib.crc32(word.encode()) % BUCKETS for word in words_of(text)]] = 1
    features /= np.sqrt(np.maximum(features.sum(axis=1, keepdims=True), 1))
    wanted = np.array(labels, np.float32)
    fold_of = np.array([zlib.crc32(str(group).encode()) % FOLDS for group in groups])
    right = 0
    for fold in range(FOLDS):
        train, test = fold_of != fold, fold_of == fold
        if train.any() and test.any():
            weights, bias = _fit(features[train], wanted[train])
            right += int((((features[test] @ weights + bias) > 0) == (wanted[test] > 0.5)).sum())
    return right / len(texts)


def artefacts(examples: Sequence[Example], groups: Sequence[int]) -> tuple[float, float]:
    """(question alone, state alone) of yes/no examples."""
    labels = [bool(example["label"]) for example in examples]
    question, state = ([example[name] for example in examples] for name in ("question", "state"))
    return accuracy(question, labels, groups), accuracy(state, labels, groups)


def _fit(features: np.ndarray, wanted: np.ndarray) -> tuple[np.ndarray, float]:
    weights, bias = np.zeros(features.shape[1], np.float32), 0.0
    for _ in range(STEPS):
        error = 1 / (1 + np.exp(-(features @ weights + bias))) - wanted
        weights -= 4.0 * (features.T @ error / len(wanted) + 1e-4 * weights)
        bias -= float(error.mean())
    return weights, bias
