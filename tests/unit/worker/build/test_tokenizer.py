"""Rebuilt tokenizers against a second implementation, token for token."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer, models, pre_tokenizers, trainers

from ostraka_shared.errors import SourceRefused
from ostraka_worker.build.tokenizer import SPLITTINGS, BpeVocabulary, build_tokenizer
from tests.unit.worker.build.corpus import HARD, SENTENCES
from tests.unit.worker.build.plain_bpe import PlainBpe

SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|im_end|>\n")


def trained() -> tuple[list[str], list[tuple[str, str]]]:
    """Pieces and merges from the corpus itself, of words and digits together, so that each way to cut is put to work."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=1500, min_frequency=2, initial_alphabet=alphabet, show_progress=False)
    tokenizer.train_from_iterator([*SENTENCES, *HARD, "123 1234 12 99 2026 2025 100 1000"] * 3, trainer)
    vocabulary = tokenizer.get_vocab()
    pieces = [*SPECIAL, *sorted(vocabulary, key=vocabulary.__getitem__)]
    # The order in which pieces were made is the order of their merges; each is the sum of the two it was made of.
    made = {piece: rank for rank, piece in enumerate(pieces)}
    merges = [pair for piece in pieces if len(piece) > 1 and piece not in SPECIAL for pair in _halves(piece, made)]
    # A piece without a merge is reached only where it is a whole word.
    return [*pieces, "ĠzzWhole"], merges


def _halves(piece: str, made: dict[str, int]) -> list[tuple[str, str]]:
    cuts = [(piece[:at], piece[at:]) for at in range(1, len(piece))]
    return [pair for pair in cuts if all(made.get(half, len(made)) < made[piece] for half in pair)][:1]


PIECES, MERGES = trained()


@pytest.fixture(params=SPLITTINGS)
def both(request: pytest.FixtureRequest) -> tuple[Tokenizer, PlainBpe]:
    vocabulary = BpeVocabulary(request.param, tuple(PIECES), tuple(MERGES), frozenset(SPECIAL), "<|im_start|>")
    return build_tokenizer(vocabulary), PlainBpe(request.param, PIECES, MERGES, SPECIAL)


def ours(tokenizer: Tokenizer, text: str) -> list[int]:
    ids: list[int] = tokenizer.encode(text, add_special_tokens=False).ids
    return ids


def test_every_text_of_the_corpus(both: tuple[Tokenizer, PlainBpe]) -> None:
    tokenizer, plain = both
    joined = (f"{a}\n{b}" for a, b in itertools.product(HARD, SENTENCES))
    for text in (*SENTENCES, *HARD, " ".join(SENTENCES), *joined, "a zzWhole zzWhole"):
        assert ours(tokenizer, text) == plain.encode(text), text


def test_special_pieces_in_the_text(both: tuple[Tokenizer, PlainBpe]) -> None:
    tokenizer, plain = both
    for text in ("<|im_start|>a<|im_end|>\n b<|im_end|>c", "x<|im_end|><|im_end|>\n", "<|im_start", "<|endoftext|>"):
        assert ours(tokenizer, text) == plain.encode(text), text


ALPHABET = st.sampled_from("aZéß日ह\u06619½'\u2019 \t\n\r\u00a0\u3000\u0301\u200d😀.,!<|_-Ġ") | st.characters(
    codec="utf-8"
)


@given(text=st.text(ALPHABET, max_size=40))
def test_any_text(text: str) -> None:
    for pre in SPLITTINGS:
        tokenizer, plain = BOTH[pre]
        assert ours(tokenizer, text) == plain.encode(text), pre


BOTH = {
    pre: (
        build_tokenizer(BpeVocabulary(pre, tuple(PIECES), tuple(MERGES), frozenset(SPECIAL), "")),
        PlainBpe(pre, PIECES, MERGES, SPECIAL),
    )
    for pre in SPLITTINGS
}


def test_the_ways_to_cut_differ_where_they_should() -> None:
    """Or the comparisons above would prove nothing about which is which."""

    def tokens(pre: str, text: str) -> list[str]:
        encoded: list[str] = BOTH[pre][0].encode(text, add_special_tokens=False).tokens
        return encoded

    assert tokens("smollm", "1234") == tokens("qwen2", "1234") == ["1", "2", "3", "4"]
    assert tokens("llama-bpe", "1234") == tokens("minicpm5", "1234") == ["123", "4"]
    assert tokens("llama-bpe", "    12") == ["ĠĠĠ", "Ġ", "12"] != tokens("minicpm5", "    12") == ["ĠĠĠĠ", "12"]
    assert tokens("llama-bpe", " zzWhole") == tokens("minicpm5", " zzWhole") == ["ĠzzWhole"]
    assert len(tokens("qwen2", " zzWhole")) > 1
    assert tokens("qwen2", "e\u0301") == tokens("qwen2", "é") != tokens("llama-bpe", "e\u0301")


def test_a_beginning_that_is_no_piece_is_refused() -> None:
    with pytest.raises(SourceRefused, match="must be one token"):
        build_tokenizer(BpeVocabulary("smollm", tuple(PIECES), tuple(MERGES), frozenset(), "<|im_start|>"))
