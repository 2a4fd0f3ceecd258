"""Labelled examples -> the tokens that the gateway would send a worker, and what each prompt's answer should be.

The prompts are the gateway's own, by its own code: what a model is tuned on is what it will be asked.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random

import numpy as np
import numpy.typing as npt
from pydantic import ValidationError
from tokenizers import Tokenizer

from ostraka.evaluation.examples import Example
from ostraka.tuning.losses import Asked
from ostraka.tuning.orders import reorder
from ostraka_gateway.prompts import render
from ostraka_gateway.schemas import SystemOneRequest, parse_request, validation_detail
from ostraka_gateway.tokenization import PromptTokenizer
from ostraka_shared.errors import OstrakaError
from ostraka_shared.model_folder import PromptContract

TokenIds = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float32]

MOST_OPTIONS = 5
"""Read of a choice in training: the right one, and others by lot. Each is a prompt; the list of all is in every one."""
_TOKEN = np.dtype("<u4")


@dataclass(frozen=True, slots=True)
class Encoded:
    """Prompt i is `prefix` + `suffixes[i]`; `targets[i]` is 1 where its answer is yes."""

    example: Example
    request: SystemOneRequest
    prefix: TokenIds
    suffixes: tuple[TokenIds, ...]
    targets: Floats

    @property
    def tokens(self) -> int:
        return len(self.prefix) + sum(map(len, self.suffixes))


class Encoder:
    """Raises ModelDamaged for a tokenizer that cannot be served."""

    def __init__(self, tokenizer: Tokenizer, contract: PromptContract, context_tokens: int) -> None:
        self._tokenizer = PromptTokenizer(tokenizer, contract)
        self._contract = contract
        self._context_tokens = context_tokens

    def encode(self, example: Example) -> Encoded:
        """Raises pydantic's ValidationError or OstrakaError, as a server would refuse it."""
        request = parse_request(example.body())
        tokens = self._tokenizer.tokenize(render(request, self._contract), self._context_tokens)
        suffixes = tuple(_ids(suffix) for suffix in tokens.suffixes)
        return Encoded(example, request, _ids(tokens.prefix), suffixes, targets_of(example, len(suffixes)))

    def encode_usable(
        self, examples: list[Example], most_tokens: int, report: Callable[[str, str], None]
    ) -> list[Encoded]:
        """All that can be asked and have at most `most_tokens`; `report(place, reason)` of the others."""
        usable = []
        for example in examples:
            try:
                encoded = self.encode(example)
            except (ValidationError, OstrakaError) as bad:
                report(example.place, _reason(bad))
                continue
            if encoded.tokens > most_tokens:
                report(example.place, f"it has {encoded.tokens} tokens; up to {most_tokens} are read in tuning")
            else:
                usable.append(encoded)
        return usable

    def encode_shuffled(self, example: Example, random: Random) -> Encoded:
        """A choice with its options in another order, and at most MOST_OPTIONS of them asked."""
        if example.form != "choice":
            return self.encode(example)
        order = list(range(example.size))
        random.shuffle(order)
        return thin(self.encode(reorder(example, order)), random)


def targets_of(example: Example, prompts: int) -> Floats:
    """A noul has one prompt, a choice one for each option, a score one for each level above the lowest."""
    places = np.arange(prompts)
    if example.form == "noul":
        return np.full(prompts, example.label, np.float32)
    is_yes = places == example.label if example.form == "choice" else places < example.label
    return is_yes.astype(np.float32)


def asked_of(encoded: Sequence[Encoded]) -> Asked:
    """What their prompts ask, example by example."""
    counts = [len(one.suffixes) for one in encoded]
    return Asked(
        np.concatenate([one.targets for one in encoded]).astype(np.float64),
        np.repeat(np.arange(len(counts)), counts),
        np.array([one.example.form == "choice" for one in encoded]),
    )


def thin(encoded: Encoded, random: Random) -> Encoded:
    label, size = encoded.example.label, len(encoded.suffixes)
    if size <= MOST_OPTIONS:
        return encoded
    others = random.sample([place for place in range(size) if place != label], MOST_OPTIONS - 1)
    kept = sorted([label, *others])
    suffixes = tuple(encoded.suffixes[place] for place in kept)
    return Encoded(encoded.example, encoded.request, encoded.prefix, suffixes, encoded.targets[kept])


def _ids(tokens: bytes) -> TokenIds:
    return np.frombuffer(tokens, _TOKEN).astype(np.int64)


def _reason(bad: Exception) -> str:
    return str(validation_detail(bad)[0]["msg"]) if isinstance(bad, ValidationError) else str(bad)
