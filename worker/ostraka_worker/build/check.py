"""Holds a built graph against the reference forward pass, on prompts of the form it will be asked."""

from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path

import numpy as np
import numpy.typing as npt
from tokenizers import Tokenizer

from ostraka_shared.errors import CheckFailed
from ostraka_shared.model_folder import GRAPH_FILE
from ostraka_worker.build.decoder import Checkpoint
from ostraka_worker.build.progress import Progress
from ostraka_worker.build.reference import reference_logits
from ostraka_worker.engine import Engine, Line, TokenIds
from ostraka_worker.kernels import best_graph
from ostraka_worker.onnx_engine import OnnxEngine

Logits = npt.NDArray[np.float32]

BATCH_PROMPTS = 5
STATES = (
    "No.",
    "I was charged twice for the same order.",
    "The parcel arrived on Tuesday, two days late, and the box was wet through. The lamp inside still works.",
    '{\n "order": {\n  "id": 90417,\n  "total": 129.9,\n  "currency": "EUR",\n  "paid": true\n },\n "notes": []\n}',
    "Señor Müller está muy molesto: “¿por qué nadie contesta?” — escribió a las 14:05 😡",
    "顧客は返金を求めています。注文番号は12345です。",
    "def area(r):\n\treturn 3.14159 * r ** 2  # naïve\n",
    "The meeting was moved from 3 pm to 4 pm. " * 7,
)
QUESTIONS = (
    "Is this a billing problem?",
    "Does the customer sound angry?",
    "Would it be wrong to say that a refund was asked for, or that a delivery was late?",
    "¿Se menciona una hora?",
)


@dataclass(frozen=True, slots=True)
class Bounds:
    """The most a graph may differ: in P(yes), in the margin between the two logits (rms), and by its batch mates."""

    largest_dp: float
    rms_margin: float
    batch_dp: float


# Measured on the embedded model, these 32 prompts: fp32 4e-6 and 5e-6, int8 0.27 and 0.3, batch mates exactly 0. (As it
# was before it was tuned, with no opinion on anything, int8 moved P(yes) by 0.09 at most: there was less to move.)
# The room left is for other CPUs and models; a misread tensor or a mixed-up pair of halves is far beyond it.
BOUNDS = {
    "fp32": Bounds(largest_dp=0.0001, rms_margin=0.001, batch_dp=0.0001),
    "int8": Bounds(largest_dp=0.4, rms_margin=0.6, batch_dp=0.0001),
}


@dataclass(frozen=True, slots=True)
class Measured:
    prompts: int
    largest_dp: float
    rms_margin: float
    batch_dp: float

    def as_dict(self) -> dict[str, float]:
        return asdict(self)


def check_graph(
    folder: Path,
    checkpoint: Checkpoint,
    tokenizer: Tokenizer,
    answer_token_ids: tuple[int, int],
    progress: Progress,
) -> Measured:
    """Each prompt alone and in a batch, against the reference."""
    prompts = check_prompts(tokenizer, checkpoint.vocabulary.bos, checkpoint.config.context_tokens)
    progress.begin(f"checking {len(prompts)} prompts against the reference", checkpoint.config.layers, " layers")
    # The reference first: beside a loaded engine, its turn of the embedding was the build's peak.
    expected = reference_logits(checkpoint, prompts, answer_token_ids, progress)
    engine = OnnxEngine(best_graph(folder / GRAPH_FILE, {each.name for each in folder.iterdir()}))
    return compare(expected, _alone(engine, prompts), _batched(engine, prompts))


def check_prompts(tokenizer: Tokenizer, bos: str, context_tokens: int) -> list[TokenIds]:
    forms = [
        f"{bos}<evidence>\n{s.strip()}\n</evidence>\n\nQuestion: {q}\nAnswer:" for s, q in product(STATES, QUESTIONS)
    ]
    encoded = [np.array(tokenizer.encode(form, add_special_tokens=False).ids, np.uint32) for form in forms]
    return [ids for ids in encoded if len(ids) <= context_tokens]


def compare(expected: Logits, alone: Logits, batched: Logits) -> Measured:
    error = _margins(alone) - _margins(expected)
    return Measured(
        prompts=len(expected),
        largest_dp=float(np.abs(_p_yes(alone) - _p_yes(expected)).max()),
        rms_margin=float(np.sqrt(np.mean(error**2))),
        batch_dp=float(np.abs(_p_yes(alone) - _p_yes(batched)).max()),
    )


def refuse_above(measured: Measured, bounds: Bounds) -> None:
    """Raises CheckFailed where a bound is passed, or a figure is no number."""
    for name, most in asdict(bounds).items():
        figure = getattr(measured, name)
        if not figure <= most:
            raise CheckFailed(
                f"the graph is wrong: its {name} is {figure:.4g}, at most {most:g} is allowed; nothing was kept"
            )


def _alone(engine: Engine, prompts: list[TokenIds]) -> Logits:
    return np.concatenate([engine.run([Line(ids)]) for ids in prompts])


def _batched(engine: Engine, prompts: list[TokenIds]) -> Logits:
    """Strided, so that a batch's prompts differ in length and content."""
    logits = np.empty((len(prompts), 2), np.float32)
    batches = -(-len(prompts) // BATCH_PROMPTS)
    for first in range(batches):
        logits[first::batches] = engine.run([Line(ids) for ids in prompts[first::batches]])
    return logits


def _margins(logits: Logits) -> npt.NDArray[np.float64]:
    return logits[:, 1].astype(np.float64) - logits[:, 0]


def _p_yes(logits: Logits) -> npt.NDArray[np.float64]:
    p: npt.NDArray[np.float64] = np.exp(-np.logaddexp(0, -_margins(logits)))  # no margin overflows
    return p
