"""The real model's graphs against a forward pass that shares nothing with the builder."""

import json
import math

import numpy as np
import pytest
from tokenizers import Tokenizer

from ostraka_shared.model_folder import ModelFolder
from ostraka_worker.engine import Line
from ostraka_worker.onnx_engine import OnnxEngine
from tests.unit.worker.build.corpus import HARD, SENTENCES
from tests.unit.worker.build.plain_bpe import PlainBpe

pytestmark = pytest.mark.e2e


def margins(logits: np.ndarray) -> np.ndarray:
    return logits[:, 1].astype(np.float64) - logits[:, 0]


def p_yes(logits: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-margins(logits)))


# Measured: fp32 4e-6 and 5e-6; int8 0.26 and 0.25, which is what rounding the activations to 8 bits costs.
@pytest.mark.parametrize(("precision", "largest_dp", "rms_margin"), [("fp32", 1e-4, 2e-4), ("int8", 0.4, 0.5)])
def test_the_graph_agrees_with_the_native_forward_pass(
    real_folders: dict[str, ModelFolder],
    real_prompts: list[Line],
    native_logits: np.ndarray,
    precision: str,
    largest_dp: float,
    rms_margin: float,
) -> None:
    engine = OnnxEngine(real_folders[precision].graph)
    logits = np.concatenate([engine.run(real_prompts[start : start + 8]) for start in range(0, 32, 8)])
    dp = np.abs(p_yes(logits) - p_yes(native_logits)).max()
    rms = math.sqrt(np.mean((margins(logits) - margins(native_logits)) ** 2))
    print(f"{precision}: {len(real_prompts)} prompts, largest |dP(yes)| {dp:.2g}, rms margin error {rms:.2g}")  # noqa: T201
    assert len(real_prompts) >= 32
    assert dp <= largest_dp
    assert rms <= rms_margin


@pytest.mark.parametrize("precision", ["fp32", "int8"])
def test_an_answer_is_the_same_bit_for_bit_whatever_its_batch_mates(
    real_folders: dict[str, ModelFolder], real_prompts: list[Line], precision: str
) -> None:
    engine = OnnxEngine(real_folders[precision].graph)
    alone = np.concatenate([engine.run([one]) for one in real_prompts])
    random = np.random.default_rng(5)
    for size in (2, 5, 12):
        order = random.permutation(len(real_prompts))[:24]
        for start in range(0, len(order), size):
            chosen = order[start : start + size]
            np.testing.assert_array_equal(engine.run([real_prompts[i] for i in chosen]), alone[chosen])


def test_known_tokens_of_the_real_vocabulary(real_folders: dict[str, ModelFolder]) -> None:
    tokenizer = Tokenizer.from_file(str(real_folders["fp32"].tokenizer))
    assert tokenizer.encode("<|im_start|>hi 12 Yes", add_special_tokens=False).ids == [1, 6004, 216, 33, 34, 9230]


def test_the_real_vocabulary_against_a_second_tokenizer(real_folders: dict[str, ModelFolder]) -> None:
    path = real_folders["fp32"].tokenizer
    tokenizer, written = Tokenizer.from_file(str(path)), json.loads(path.read_text())
    vocabulary: dict[str, int] = written["model"]["vocab"]
    special = [token["content"] for token in written["added_tokens"]]
    merges = [tuple(pair) for pair in written["model"]["merges"]]
    plain = PlainBpe("smollm", sorted(vocabulary, key=vocabulary.__getitem__), merges, special)
    for text in (*SENTENCES, *HARD, "\n".join(SENTENCES)):
        assert tokenizer.encode(text, add_special_tokens=False).ids == plain.encode(text), text
