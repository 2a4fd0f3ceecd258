"""A model folder whose engine is the fake one and whose tokenizer has a token for each of its faults."""

from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

from ostraka_shared.model_folder import (
    SPEC_FILE,
    TOKENIZER_FILE,
    ModelFolder,
    ModelSpec,
    PromptContract,
    open_folder,
    write_sums,
)

TRIGGERS = {
    "fail_on_token": "<fail>",
    "die_on_token": "<die>",
    "stall_on_token": "<stall>",
    "nan_on_token": "<nan>",
    "grow_on_token": "<grow>",
}


def make_tokenizer() -> Tokenizer:
    """One token a byte, so that lengths are easy to reason about, and one for each trigger text."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE(vocab={piece: i for i, piece in enumerate(alphabet)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(text, special=True) for text in ("<s>", *TRIGGERS.values())])
    return tokenizer


def make_fake_model(path: Path, context_tokens: int = 8192, **fake: Any) -> ModelFolder:
    """`fake` adds to the plan of `fake_engine`: `stall_until`, `ms_per_token`, `fail_to_load`."""
    path.mkdir(parents=True)
    tokenizer = make_tokenizer()
    plan = {name: tokenizer.token_to_id(text) for name, text in TRIGGERS.items()}
    spec = ModelSpec(
        name="fake-model",
        architecture="fake",
        precision="fp32",
        context_tokens=context_tokens,
        contract=PromptContract(bos="<s>", no="0", yes="1"),
        answer_token_ids=(tokenizer.token_to_id("0"), tokenizer.token_to_id("1")),
        builder_version="0",
        engine="fake",
        fake={**plan, **fake},
    )
    (path / SPEC_FILE).write_text(spec.to_json(), encoding="utf-8")
    tokenizer.save(str(path / TOKENIZER_FILE))
    write_sums(path)
    return open_folder(path)
