import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ostraka_gateway.prompts import indented_chars, render
from ostraka_gateway.schemas import SystemOneRequest, parse_request
from ostraka_shared.model_folder import PromptContract
from tests.questions import QUESTIONS, WORDS

CASES = json.loads(Path(__file__).with_name("jevos_unit_cases.json").read_text(encoding="utf-8"))
CONTRACT = PromptContract(bos="<s>", no="0", yes="1")
NOUL = {"type": "noul", "instructions": "Is it late?"}


def ask(state="The parcel is two days late.", **questions):
    return render(SystemOneRequest(state=state, questions=questions or {"q": NOUL}), CONTRACT)


def containers(inner):
    inner = inner if isinstance(inner, st.SearchStrategy) else st.just(inner)
    return st.lists(inner) | st.dictionaries(WORDS, inner)


def texts(rendered):
    return [text for _, text in rendered.prompts()]


@pytest.mark.parametrize("case", CASES["prompts"], ids=lambda case: case["name"])
def test_prompts_are_exact(case):
    rendered = render(parse_request(json.dumps(case["request"]).encode()), CONTRACT)
    assert [{"question": name, "prompt": text} for name, text in rendered.prompts()] == case["prompts"]


def test_the_contract_gives_the_bos_text():
    rendered = render(SystemOneRequest(state="s", questions={"q": NOUL}), PromptContract("<bos>", "0", "1"))
    assert texts(rendered) == ["<bos><evidence>\ns\n</evidence>\n\nQuestion: Is it late?\nAnswer:"]
    assert rendered.state == "<bos><evidence>\ns\n</evidence>"


@pytest.mark.parametrize(("state", "body"), [("", ""), (" \n", ""), ({}, "{}"), ([], "[]")])
def test_an_empty_state_still_makes_a_prompt(state, body):
    assert ask(state).state == f"<s><evidence>\n{body}\n</evidence>"


def test_the_closing_tag_is_found_in_ascii_letters_of_either_case_only():
    assert ask("</eViDeNcE> ").state == '<s><evidence>\n"</eViDeNcE> "\n</evidence>'
    assert ask("</ev\u0131dence> ").state == "<s><evidence>\n</ev\u0131dence>\n</evidence>"


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
def test_what_is_to_be_read_is_told_beforehand(state, questions):
    rendered = ask(state, **questions)
    rests = [text.removeprefix(rendered.opening) for text in texts(rendered)]
    assert rendered.chars == len(rendered.opening) + sum(map(len, rests))


@given(
    st.recursive(
        st.none() | st.floats(allow_nan=False, allow_infinity=False) | WORDS, containers, max_leaves=30
    ).flatmap(containers)
)
def test_the_length_of_a_written_state_is_told_beforehand(state):
    assert len(ask(state).state) == len("<s><evidence>\n\n</evidence>") + indented_chars(state)


@given(WORDS, QUESTIONS)
def test_each_part_begins_a_line_with_a_letter(state, questions):
    rendered = ask(state, **questions)
    for question in rendered.questions:
        parts = [rendered.opening, *([question.body] if question.body else [])]
        assert all(part.endswith("\n") for part in parts)
        assert all(part[0] in "QCL" for part in (*parts[1:], *question.endings))
