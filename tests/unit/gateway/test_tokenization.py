import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Regex, Tokenizer, models, pre_tokenizers, trainers

from ostraka_gateway import long_text, tokenization
from ostraka_gateway.long_text import TooManyTokens, encode_long
from ostraka_gateway.prompts import render
from ostraka_gateway.schemas import SystemOneRequest
from ostraka_gateway.tokenization import PromptTokenizer
from ostraka_shared.errors import ModelDamaged, PromptTooLong
from ostraka_shared.model_folder import PromptContract
from tests.questions import QUESTIONS, WORDS

CASES = json.loads(Path(__file__).with_name("jevos_unit_cases.json").read_text(encoding="utf-8"))
CONTRACT = PromptContract(bos="<s>", no="0", yes="1")
NOUL = {"type": "noul", "instructions": "Is it late?"}
ROOMY = 1_000_000
BITS = (" ", "  ", "\n", "\n\n", "12345", "x\u0301", "\U0001f600", "<s>", "</s>", "- ", "!?", "'s", "\u3000")
LLAMA3 = Regex(
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
BYTES = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
SPLITS = {
    "gpt2": pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True),
    "smollm": pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    ),
    "llama3": pre_tokenizers.Sequence([pre_tokenizers.Split(LLAMA3, "isolated"), BYTES]),
}


def train_tokenizer(splits):
    """Byte-level BPE, so that every text has tokens. The corpus is small, so that much of the prompt's own text merges."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = splits
    trainer = trainers.BpeTrainer(
        vocab_size=400,
        special_tokens=["<s>", "</s>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    texts = [entry["prompt"].removeprefix("<s>") for case in CASES["prompts"] for entry in case["prompts"]]
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer


TOKENIZERS = {name: train_tokenizer(splits) for name, splits in SPLITS.items()}
TOKENIZER = TOKENIZERS["smollm"]
ANY = st.sampled_from(sorted(TOKENIZERS))


def ask(state="The parcel is two days late.", **questions):
    return render(SystemOneRequest(state=state, questions=questions or {"q": NOUL}), CONTRACT)


def texts(rendered):
    return [text for _, text in rendered.prompts()]


def token_ids(text, tokenizer=TOKENIZER):
    return tokenizer.encode(text, add_special_tokens=False).ids


def tokenize(rendered, context_tokens=ROOMY, tokenizer=TOKENIZER):
    return PromptTokenizer(tokenizer, CONTRACT).tokenize(rendered, context_tokens)


def joined(tokenized):
    return [np.frombuffer(tokenized.prefix + suffix, "<u4").tolist() for suffix in tokenized.suffixes]


def shared_tokens(sequences):
    """Plainly: the places at which all sequences have the same token, up to the first difference."""
    count = 0
    for column in zip(*sequences, strict=False):
        if len(set(column)) > 1:
            break
        count += 1
    return count


@given(ANY, WORDS, QUESTIONS)
def test_the_parts_joined_are_the_whole_prompt_and_the_prefix_is_the_longest(name, state, questions):
    rendered = ask(state, **questions)
    whole = [token_ids(text, TOKENIZERS[name]) for text in texts(rendered)]
    tokenized = tokenize(rendered, tokenizer=TOKENIZERS[name])
    assert joined(tokenized) == whole
    assert all(tokenized.suffixes)
    if len(whole) > 1:
        assert len(tokenized.prefix) == 4 * min(shared_tokens(whole), min(map(len, whole)) - 1)
    else:
        assert len(tokenized.prefix) == 4 * tokenized.state_tokens


@given(ANY, WORDS, QUESTIONS)
def test_input_tokens_count_the_state_once(name, state, questions):
    """The state is its text's tokens but the last, in whose place the whole prompts may have another."""
    rendered = ask(state, **questions)
    whole = [token_ids(text, TOKENIZERS[name]) for text in texts(rendered)]
    tokenized = tokenize(rendered, tokenizer=TOKENIZERS[name])
    state_tokens = shared_tokens([token_ids(rendered.state, TOKENIZERS[name])[:-1], *whole]) if whole else 0
    assert tokenized.state_tokens == state_tokens
    assert tokenized.input_tokens == sum(map(len, whole)) - state_tokens * max(0, len(whole) - 1)


def test_a_tokenizer_may_merge_the_state_s_end_with_the_empty_line():
    """llama3's does: then the state's last token is not in the prompts, and the rule above is no mere formality."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = SPLITS["llama3"]
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=300, special_tokens=["<s>"], initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator(["</evidence>\n\nQuestion:"] * 50, trainer)
    rendered = ask(a=NOUL, b={"type": "noul", "instructions": "Why?"})
    whole = [token_ids(text, tokenizer) for text in texts(rendered)]
    state = token_ids(rendered.state, tokenizer)
    assert whole[0][: len(state)] != state
    tokenized = tokenize(rendered, tokenizer=tokenizer)
    assert joined(tokenized) == whole
    assert tokenized.state_tokens == shared_tokens([state[:-1], *whole]) == len(state) - 1


@pytest.mark.parametrize("splits", [BYTES, pre_tokenizers.Metaspace()], ids=["whole text", "marked words"])
def test_a_tokenizer_that_merges_across_lines_is_refused(splits):
    with pytest.raises(ModelDamaged, match="merges across the start of a line"):
        PromptTokenizer(train_tokenizer(splits), CONTRACT)


def test_a_lone_question_s_prefix_is_its_state_and_nothing_is_discounted():
    tokenized = tokenize(ask())
    whole = token_ids(texts(ask())[0])
    assert joined(tokenized) == [whole]
    state = shared_tokens([token_ids(ask().state)[:-1], whole])
    assert (tokenized.state_tokens, tokenized.input_tokens) == (state, len(whole))
    assert len(tokenized.prefix) == 4 * state


def test_a_request_may_need_no_prompt_at_all():
    tokenized = tokenize(ask(q={"type": "score", "criteria": ["only"]}))
    assert (tokenized.prefix, tokenized.suffixes, tokenized.input_tokens) == (b"", (), 0)


def test_equal_prompts_share_all_but_their_last_token():
    tokenized = tokenize(ask(a=NOUL, b=NOUL))
    assert [len(suffix) for suffix in tokenized.suffixes] == [4, 4]


def test_a_choice_shares_its_option_list_beyond_the_state():
    tokenized = tokenize(ask(q={"type": "choice", "criteria": {"a": None, "b": None}}))
    assert len(tokenized.prefix) // 4 > tokenized.state_tokens > 0


def test_special_tokens_in_a_text_are_parsed():
    assert token_ids("<s>")[0] == joined(tokenize(ask("</s>")))[0][0]
    assert TOKENIZER.token_to_id("</s>") in joined(tokenize(ask("</s>")))[0]


def test_tokens_are_little_endian_uint32():
    tokenized = tokenize(ask())
    assert (tokenized.prefix + tokenized.suffixes[0])[:8] == b"".join(
        i.to_bytes(4, "little") for i in token_ids(texts(ask())[0])[:2]
    )


def test_many_lines_are_tokenized_a_few_at_a_time(monkeypatch):
    rendered = ask(**{f"q{i}": {"type": "noul", "instructions": f"Is it {i}?"} for i in range(20)})
    at_once = tokenize(rendered)
    counting = Counting()
    tokenizer = PromptTokenizer(counting, CONTRACT)
    counting.batches.clear()
    monkeypatch.setattr(tokenization, "BATCH_CHARS", 100)
    assert tokenizer.tokenize(rendered, ROOMY) == at_once
    _, *asked = counting.batches  # the opening comes first, alone
    assert all(sum(map(len, batch)) <= 100 for batch in asked)
    assert len(asked) > 5


class Counting:
    """A tokenizer that tells what it was given."""

    def __init__(self):
        self.batches = []

    def encode_batch_fast(self, batch, add_special_tokens):
        self.batches.append(batch)
        return TOKENIZER.encode_batch_fast(batch, add_special_tokens=add_special_tokens)

    def get_vocab(self):
        return TOKENIZER.get_vocab()

    def encode_batch(self, batch, add_special_tokens):
        self.batches.append(batch)
        return TOKENIZER.encode_batch(batch, add_special_tokens=add_special_tokens)


def chars_read(rendered):
    counting = Counting()
    tokenizer = PromptTokenizer(counting, CONTRACT)
    counting.batches.clear()
    tokenizer.tokenize(rendered, ROOMY)
    return sum(len(text) for batch in counting.batches for text in batch)


def test_no_text_is_tokenized_twice():
    """A choice of 255 options over a long state: its text once, where whole prompts would be 255 times as long."""
    options = {f"option {number}": "what it is for" for number in range(255)}
    rendered = ask("late " * 500, q={"type": "choice", "criteria": options}, **{f"n{i}": NOUL for i in range(100)})
    question = rendered.questions[0]
    once = sum(map(len, (rendered.opening, "Question", question.body, *question.endings))) + 100 * len(
        "Question: Is it late?\nAnswer:"
    )
    assert chars_read(rendered) == once
    assert sum(map(len, texts(rendered))) > 100 * once


# Context


def test_a_prompt_may_fill_the_context():
    length = len(token_ids(texts(ask())[0]))
    (tokens,) = joined(tokenize(ask(), length))
    assert len(tokens) == length


def test_a_longer_prompt_is_refused_never_cut():
    rendered = ask(
        short=NOUL,
        long={"type": "noul", "instructions": "Why? " * 50},
        longer={"type": "noul", "instructions": "Why? " * 90},
    )
    short, long, _ = (len(token_ids(text)) for text in texts(rendered))
    with pytest.raises(PromptTooLong) as caught:
        tokenize(rendered, short)
    assert caught.value.loc == ("body", "questions", "long")
    assert caught.value.kind == "prompt_too_long"
    assert str(caught.value) == (
        f"Question 'long' makes a prompt of {long} tokens with the state; the model reads {short}"
    )


@given(name=ANY, bits=st.lists(st.sampled_from(BITS) | WORDS, max_size=200), piece=st.integers(1, 90))
def test_a_long_text_is_tokenized_in_pieces_as_if_whole(name, bits, piece):
    text = "".join(bits)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(long_text, "PIECE_CHARS", piece)
        patch.setattr(long_text, "MARGIN_CHARS", 12)
        found = encode_long(TOKENIZERS[name], text, ROOMY, 20)
    assert np.frombuffer(found, "<u4").tolist() == token_ids(text, TOKENIZERS[name])


def test_what_no_tokens_of_this_tokenizer_could_cover_is_not_tokenized_at_all():
    longest = max(len(token) for token in TOKENIZER.get_vocab())
    with pytest.raises(TooManyTokens) as caught:
        encode_long(None, "x" * (100 * longest), 99, longest)
    assert caught.value.tokens == 100


@pytest.mark.parametrize("asked", [{"state": "late " * 4000}, {"q": {"type": "noul", "instructions": "late " * 1500}}])
def test_what_is_certainly_too_long_is_not_tokenized_to_its_end(monkeypatch, asked):
    monkeypatch.setattr(tokenization, "BATCH_CHARS", 1000)
    monkeypatch.setattr(long_text, "PIECE_CHARS", 1000)
    monkeypatch.setattr(long_text, "MARGIN_CHARS", 10)
    counting = Counting()
    tokenizer = PromptTokenizer(counting, CONTRACT)
    counting.batches.clear()
    with pytest.raises(PromptTooLong, match=r"Question 'q' makes a prompt of at least \d+ tokens"):
        tokenizer.tokenize(ask(**asked), 150)
    assert sum(len(text) for batch in counting.batches for text in batch) < 5000
    fitting = PromptTokenizer(counting, CONTRACT).tokenize(ask(**asked), ROOMY)
    assert joined(fitting) == [token_ids(text) for text in texts(ask(**asked))]


def test_of_a_state_that_is_itself_too_long_only_the_first_lines_are_tokenized(monkeypatch):
    counting = Counting()
    tokenizer = PromptTokenizer(counting, CONTRACT)
    counting.batches.clear()
    monkeypatch.setattr(tokenization, "BATCH_CHARS", 10)
    with pytest.raises(PromptTooLong, match="'q0'"):
        tokenizer.tokenize(ask("late " * 500, **{f"q{i}": NOUL for i in range(50)}), 100)
    assert len(counting.batches) <= 3
