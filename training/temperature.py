"""The temperature that makes a model's answers honest on labelled examples: for make_adapter, before it is shipped.

    python -m training.temperature DATA.jsonl.gz ... --model DIR [--most 600]

Fitted as `ostraka model tune` does, on the margins of every prompt as the model folder gives them. A folder that was
built with a temperature already tells what is still to be divided by.
"""

import argparse
import sys
from pathlib import Path
from random import Random

import numpy as np
from tokenizers import Tokenizer
from tqdm import tqdm

from ostraka.evaluation.examples import Example, read_examples
from ostraka.tuning.encoding import Encoded, Encoder, asked_of
from ostraka.tuning.losses import Asked, Margins, fit_temperature, mean_loss
from ostraka_shared.model_folder import ModelFolder, open_folder
from ostraka_worker.engine import Engine, Line
from ostraka_worker.engines import load_engine

MOST_TOKENS = 2048


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m training.temperature", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data", nargs="+")
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--most", type=int, default=600, help="examples to ask, drawn by lot (default: %(default)s)")
    parser.add_argument("--threads", type=int, default=1)
    values = parser.parse_args()
    folder = open_folder(values.model)
    examples = draw(list(read_examples(values.data, "source", _complain)), values.most)
    encoded = encode(folder, examples)
    margins = ask(load_engine(folder, values.threads), encoded)
    describe("all", margins, asked_of(encoded))
    for form in sorted({one.example.form for one in encoded}):
        own, own_margins = only(form, encoded, margins)
        describe(form, own_margins, asked_of(own))


def draw(examples: list[Example], most: int) -> list[Example]:
    return Random(1).sample(examples, most) if len(examples) > most else examples


def encode(folder: ModelFolder, examples: list[Example]) -> list[Encoded]:
    tokenizer = Tokenizer.from_file(str(folder.tokenizer))
    encoder = Encoder(tokenizer, folder.spec.contract, folder.spec.context_tokens)
    return encoder.encode_usable(examples, MOST_TOKENS, _complain)


def ask(engine: Engine, encoded: list[Encoded]) -> Margins:
    """Of every prompt, example by example."""
    margins = []
    for one in tqdm(encoded, unit="example", disable=None, file=sys.stderr):
        lines = [Line(np.concatenate([one.prefix, suffix]).astype(np.uint32)) for suffix in one.suffixes]
        margins.append(np.diff(engine.run(lines).astype(np.float64))[:, 0])
    return np.concatenate(margins)


def only(form: str, encoded: list[Encoded], margins: Margins) -> tuple[list[Encoded], Margins]:
    chosen = np.repeat([one.example.form == form for one in encoded], [len(one.suffixes) for one in encoded])
    return [one for one in encoded if one.example.form == form], margins[chosen]


def describe(name: str, margins: Margins, asked: Asked) -> None:
    temperature = fit_temperature(margins, asked)
    before, after = mean_loss(margins, asked), mean_loss(margins / temperature, asked)
    print(
        f"{name:7} {len(asked.is_choice):5} examples: temperature {temperature:.3f}, loss {before:.4f} -> {after:.4f}"
    )


def _complain(place: str, reason: str) -> None:
    print(f"{place}: {reason}", file=sys.stderr)


if __name__ == "__main__":
    main()
