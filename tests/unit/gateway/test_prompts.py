import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer, models, pre_tokenizers, trainers

from ostraka_gateway import prompts
from ostraka_gateway.prompts import render, tokenize
from ostraka_gateway.schemas import SystemOneRequest, parse_request
from ostraka_shared.errors import PromptTooLong
from ostraka_shared.model_folder import PromptContract

CASES = json.loads(Path(__file__).with_name("jevos_unit_cases.json").read_text(encoding="utf-8"))
CONTRACT = PromptContract(bos="<s>", no="0", yes="1")
NOUL = {"type": "noul", "instructions": "Is it late?"}
ROOMY = 1_000_000


def train_tokenizer():
    """Byte-level BPE, so that every text has tokens, with merges across words' borders."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    trainer = trainers.BpeTrainer(
        vocab_size=400,
        special_tokens=["<s>", "</s>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    texts = [entry["prompt"].removeprefix("<s>") for case in CASES["prompts"] for entry in case["prompts"]]
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer


TOKENIZER = train_tokenizer()


def ask(state="The parcel is two days late.", **questions):
    return render(SystemOneRequest(state=state, questions=questions or {"q": NOUL}), CONTRACT)


def texts(rendered):
    return [text for _, text in rendered.prompts()]


def token_ids(text):
    return TOKENIZER.encode(text, add_special_tokens=False).ids


def joined(tokenized):
    return [np.frombuffer(tokenized.prefix + suffix, "<u4").tolist() for suffix in tokenized.suffixes]


# Prompts


@pytest.mark.parametrize("case", CASES["prompts"], ids=lambda case: case["name"])
def test_prompts_are_exact(case):
    rendered = render(parse_request(json.dumps(case["request"]).encode()), CONTRACT)
    assert [{"question": name, "prompt": text} for name, text in rendered.prompts()] == case["prompts"]


def test_the_contract_gives_the_bos_text():
    rendered = render(SystemOneRequest(state="s", questions={"q": NOUL}), PromptContract("<bos>", "0", "1"))
    assert texts(rendered) == ["<bos><evidence>\ns\n</evidence>\n\nQuestion: Is it late?\nAnswer:"]
    assert rendered.opening == "<bos><evidence>\ns\n</evidence>"


@pytest.mark.parametrize(("state", "body"), [("", ""), (" \n", ""), ({}, "{}"), ([], "[]")])
def test_an_empty_state_still_makes_a_prompt(state, body):
    assert ask(state).opening == f"<s><evidence>\n{body}\n</evidence>"


def test_the_closing_tag_is_found_in_ascii_letters_of_either_case_only():
    assert ask("</eViDeNcE> ").opening == '<s><evidence>\n"</eViDeNcE> "\n</evidence>'
    assert ask("</ev\u0131dence> ").opening == "<s><evidence>\n</ev\u0131dence>\n</evidence>"


@pytest.mark.parametrize("instructions", [None, "", " \t\n", {}, []])
@pytest.mark.parametrize(
    ("question", "default"),
    [
        ({"type": "noul"}, "Does the evidence support a yes?"),
        ({"type": "choice", "criteria": {"a": None}}, "Which option fits the evidence best?"),
        ({"type": "score", "criteria": ["a", "b"]}, "Which level fits the evidence best?"),
    ],
)
def test_absent_instructions_have_a_default(question, default, instructions):
    (text,) = texts(ask(q=question | {"instructions": instructions}))
    assert f"\n\nQuestion: {default}\n" in text


@pytest.mark.parametrize(
    ("text", "shown"),
    [(None, " n "), ("", " n "), ("  ", " n : "), (" why ", " n : why"), ({}, " n : {}"), ([2.0], " n : [2.0]")],
)
def test_an_option_s_name_is_shown_as_sent(text, shown):
    (prompt,) = texts(ask(q={"type": "choice", "criteria": {" n ": text}}))
    assert prompt.endswith(
        f"\nCandidates:\n- {shown}\nAmong the candidates, is it this one?\nCandidate: {shown}\nAnswer:"
    )


def test_noul_criteria_are_never_shown():
    assert texts(ask(q=NOUL | {"criteria": {"true": "secret"}})) == texts(ask(q=NOUL))


@pytest.mark.parametrize(
    ("question", "count"),
    [
        (NOUL, 1),
        ({"type": "choice", "criteria": {"a": None}}, 1),
        ({"type": "choice", "criteria": {"a": None, "b": None, "c": None}}, 3),
        ({"type": "score", "criteria": ["a"]}, 0),
        ({"type": "score", "criteria": ["a", "b", "c", "d"]}, 3),
    ],
)
def test_the_number_of_prompts_is_told_beforehand(question, count):
    request = SystemOneRequest(state="s", questions={"q": question})
    rendered = render(request, CONTRACT)
    assert rendered.prompt_count == request.prompt_count == len(texts(rendered)) == count


# Tokens

WORDS = st.text(max_size=30)
QUESTION = st.one_of(
    st.builds(lambda text: {"type": "noul", "instructions": text}, WORDS),
    st.builds(
        lambda text, names: {"type": "choice", "instructions": text, "criteria": dict.fromkeys(names)},
        WORDS,
        st.lists(st.text(max_size=6), min_size=1, max_size=4, unique=True),
    ),
    st.builds(
        lambda text, levels: {"type": "score", "instructions": text, "criteria": levels},
        WORDS,
        st.lists(st.text(max_size=6), min_size=1, max_size=4),
    ),
)
QUESTIONS = st.dictionaries(st.text(min_size=1, max_size=3).filter(str.strip), QUESTION, min_size=1, max_size=4)


def shared_tokens(sequences):
    """Plainly: the places at which all sequences have the same token, up to the first difference."""
    count = 0
    for column in zip(*sequences, strict=False):
        if len(set(column)) > 1:
            break
        count += 1
    return count


@given(WORDS, QUESTIONS)
def test_prefix_and_suffix_are_the_whole_prompt_and_the_prefix_is_the_longest(state, questions):
    rendered = ask(state, **questions)
    whole = [token_ids(text) for text in texts(rendered)]
    tokenized = tokenize(TOKENIZER, rendered, ROOMY)
    assert joined(tokenized) == whole
    assert all(tokenized.suffixes)
    if len(whole) > 1:
        assert len(tokenized.prefix) == 4 * min(shared_tokens(whole), min(map(len, whole)) - 1)
    else:
        assert len(tokenized.prefix) == 4 * tokenized.state_tokens


@given(WORDS, QUESTIONS)
def test_input_tokens_count_the_state_once(state, questions):
    rendered = ask(state, **questions)
    whole = [token_ids(text) for text in texts(rendered)]
    tokenized = tokenize(TOKENIZER, rendered, ROOMY)
    state_tokens = shared_tokens([token_ids(rendered.opening)[:-1], *whole]) if whole else 0
    assert tokenized.state_tokens == state_tokens
    assert tokenized.input_tokens == sum(map(len, whole)) - state_tokens * max(0, len(whole) - 1)


@given(WORDS, QUESTIONS, st.randoms(use_true_random=False))
def test_a_question_s_prompts_depend_on_neither_id_nor_order(state, questions, random):
    names = list(questions)
    random.shuffle(names)
    renamed = ask(state, **{f"id {name}": questions[name] for name in names})
    together = list(renamed.prompts())
    for name in names:
        alone = texts(ask(state, **{name: questions[name]}))
        assert [text for owner, text in together if owner == f"id {name}"] == alone


@given(WORDS, QUESTIONS)
def test_the_length_of_all_prompts_is_told_beforehand(state, questions):
    rendered = ask(state, **questions)
    assert rendered.chars == sum(map(len, texts(rendered)))


def test_a_lone_question_s_prefix_is_its_state_and_nothing_is_discounted():
    tokenized = tokenize(TOKENIZER, ask(), ROOMY)
    whole = token_ids(texts(ask())[0])
    assert joined(tokenized) == [whole]
    state = shared_tokens([token_ids(ask().opening)[:-1], whole])
    assert (tokenized.state_tokens, tokenized.input_tokens) == (state, len(whole))
    assert len(tokenized.prefix) == 4 * state


def test_a_request_may_need_no_prompt_at_all():
    tokenized = tokenize(TOKENIZER, ask(q={"type": "score", "criteria": ["only"]}), ROOMY)
    assert (tokenized.prefix, tokenized.suffixes, tokenized.input_tokens) == (b"", (), 0)


def test_equal_prompts_share_all_but_their_last_token():
    tokenized = tokenize(TOKENIZER, ask(a=NOUL, b=NOUL), ROOMY)
    assert [len(suffix) for suffix in tokenized.suffixes] == [4, 4]


def test_a_choice_shares_its_option_list_beyond_the_state():
    tokenized = tokenize(TOKENIZER, ask(q={"type": "choice", "criteria": {"a": None, "b": None}}), ROOMY)
    assert len(tokenized.prefix) // 4 > tokenized.state_tokens > 0


def test_where_a_prompt_adds_nothing_to_the_state_s_tokens_no_state_is_shared():
    """The rule for tokenizers that would fold the question into the state; here two prompts end inside the state."""
    opening, short, long = (np.array(ids, "<u4").tobytes() for ids in ([0, 5, 6, 7], [0, 5], [0, 5, 6, 9]))
    tokenized = prompts._split(opening, [short, long])
    assert (tokenized.state_tokens, tokenized.input_tokens) == (0, 6)
    assert tokenized.prefix == short[:4]


def test_a_merge_may_reach_from_the_state_into_the_question():
    """The opening's last token is left out, since in the whole prompts another may stand there."""
    corpus = ["</evidence>\n\nQuestion:"] * 50
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.train_from_iterator(
        corpus,
        trainers.BpeTrainer(
            vocab_size=300,
            special_tokens=["<s>"],
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            show_progress=False,
        ),
    )
    rendered = ask(a=NOUL, b={"type": "noul", "instructions": "Why?"})
    whole = [tokenizer.encode(text, add_special_tokens=False).ids for text in texts(rendered)]
    opening = tokenizer.encode(rendered.opening, add_special_tokens=False).ids
    assert whole[0][: len(opening)] != opening
    tokenized = tokenize(tokenizer, rendered, ROOMY)
    assert joined(tokenized) == whole
    assert tokenized.state_tokens == shared_tokens([opening[:-1], *whole])


def test_special_tokens_in_a_text_are_parsed():
    assert token_ids("<s>")[0] == joined(tokenize(TOKENIZER, ask("</s>"), ROOMY))[0][0]
    assert TOKENIZER.token_to_id("</s>") in joined(tokenize(TOKENIZER, ask("</s>"), ROOMY))[0]


def test_tokens_are_little_endian_uint32():
    tokenized = tokenize(TOKENIZER, ask(), ROOMY)
    assert (tokenized.prefix + tokenized.suffixes[0])[:8] == b"".join(
        i.to_bytes(4, "little") for i in token_ids(texts(ask())[0])[:2]
    )


def test_many_prompts_are_tokenized_a_few_at_a_time(monkeypatch):
    rendered = ask(**{f"q{i}": {"type": "noul", "instructions": f"Is it {i}?"} for i in range(20)})
    at_once = tokenize(TOKENIZER, rendered, ROOMY)
    monkeypatch.setattr(prompts, "BATCH_CHARS", 250)
    batches = list(prompts._batches(rendered.prompts()))
    assert len(batches) > 5
    assert [prompt for batch in batches for prompt in batch] == list(rendered.prompts())
    assert all(len(batch) == 1 or sum(len(text) for _, text in batch) <= 250 for batch in batches)
    assert tokenize(TOKENIZER, rendered, ROOMY) == at_once


# Context


def test_a_prompt_may_fill_the_context():
    length = len(token_ids(texts(ask())[0]))
    (tokens,) = joined(tokenize(TOKENIZER, ask(), length))
    assert len(tokens) == length


def test_a_longer_prompt_is_refused_never_cut():
    rendered = ask(
        short=NOUL,
        long={"type": "noul", "instructions": "Why? " * 50},
        longer={"type": "noul", "instructions": "Why? " * 90},
    )
    short, long, _ = (len(token_ids(text)) for text in texts(rendered))
    with pytest.raises(PromptTooLong) as caught:
        tokenize(TOKENIZER, rendered, short)
    assert caught.value.loc == ("body", "questions", "long")
    assert caught.value.kind == "prompt_too_long"
    assert str(caught.value) == (
        f"Question 'long' makes a prompt of {long} tokens with the state; the model reads {short}"
    )


def test_of_a_state_that_is_itself_too_long_only_the_first_prompts_are_tokenized(monkeypatch):
    """1,024 questions on it would take a thousand times as long to refuse."""
    tokenized = []

    class Counting:
        def encode_batch_fast(self, batch, add_special_tokens):
            tokenized.extend(batch)
            return TOKENIZER.encode_batch_fast(batch, add_special_tokens=add_special_tokens)

    monkeypatch.setattr(prompts, "BATCH_CHARS", 1000)
    with pytest.raises(PromptTooLong, match="'q0'"):
        tokenize(Counting(), ask("late " * 500, **{f"q{i}": NOUL for i in range(50)}), 100)
    assert len(tokenized) == 1
