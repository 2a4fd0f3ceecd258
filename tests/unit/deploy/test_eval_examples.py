import gzip
import json

import pytest

from ostraka.answerers import Outcome, _unreachable
from ostraka.evaluation.asking import Prediction, Refusal, ask, read_outcome
from ostraka.evaluation.examples import BadExample, parse_example, read_examples
from ostraka_gateway.schemas import SystemOneRequest
from ostraka_shared.errors import ConfigError

NOUL = {"state": "It rains.", "question": "Is it wet?", "type": "noul", "label": True, "source": "weather"}
CHOICE = {"state": {"a": 1}, "question": "Which?", "type": "choice", "label": 1, "options": ["x", "y", "z"]}
SCORE = {"state": ["s"], "question": "How much?", "type": "score", "label": 2, "levels": ["low", "mid", "high"]}


def parse(fields, **changes):
    return parse_example(json.dumps(fields | changes).encode(), "file:1")


@pytest.mark.parametrize("fields", [NOUL, CHOICE, SCORE, CHOICE | {"options": {"x": "one", "y": None}}])
def test_an_example_makes_a_request_that_the_server_takes(fields):
    body = json.loads(parse(fields).body())
    request = SystemOneRequest.model_validate(body)
    assert request.state == fields["state"]
    assert body["questions"]["q"]["instructions"] == fields["question"]


def test_fields_of_each_form():
    assert (parse(NOUL).label, parse(NOUL).size, parse(NOUL).group) == (1, 2, "weather")
    choice = parse(CHOICE)
    assert (choice.label, choice.size, choice.options, choice.group) == (1, 3, ("x", "y", "z"), "(none)")
    assert parse(CHOICE, options={"b": "told", "a": None}).options == ("b", "a")
    assert (parse(SCORE).label, parse(SCORE).size) == (2, 3)


@pytest.mark.parametrize(
    ("fields", "changes", "reason"),
    [
        (NOUL, {"label": 1}, "true or false"),
        (NOUL, {"type": "rank"}, "'type' is 'rank'"),
        (CHOICE, {"label": 3}, "from 0 to 2"),
        (CHOICE, {"label": True}, "from 0 to 2"),
        (CHOICE, {"label": -1}, "from 0 to 2"),
        (CHOICE, {"options": ["x", "x"]}, "same name"),
        (CHOICE, {"options": ["x"]}, "two or more"),
        (CHOICE, {"options": ["x", 2]}, "two or more"),
        (SCORE, {"levels": "low"}, "'levels'"),
        (SCORE, {"label": 1.0}, "from 0 to 2"),
    ],
)
def test_what_is_no_example_says_why(fields, changes, reason):
    with pytest.raises(BadExample, match=reason):
        parse(fields, **changes)


@pytest.mark.parametrize("half", [b"\\ud83d", b"\\uDE00", b"\xed\xa0\xbd"])
def test_half_a_character_is_no_unicode(half):
    line = b'{"state": {"a": ["x"]}, "question": "q", "label": true, "note": "y"}'
    assert parse_example(line.replace(b'"x"', b'"\\ud83d\\ude00"'), "f:1").state == {"a": ["\U0001f600"]}
    for text in (b'"x"', b'"q"', b'"y"'):
        with pytest.raises(BadExample, match="not Unicode"):
            parse_example(line.replace(text, b'"' + half + b'"'), "f:1")


@pytest.mark.parametrize("line", [b"{", b"[1]", b'"x"', b'{"state": 1, "question": "q"}', b"\xff\xfe", b"[" * 100_000])
def test_what_is_no_object_with_its_fields_is_refused(line):
    with pytest.raises(BadExample):
        parse_example(line, "file:1")


@pytest.mark.parametrize("name", ["data.jsonl", "data.jsonl.gz"])
def test_lines_are_read_plain_or_gzip_and_bad_ones_do_not_stop(tmp_path, name):
    lines = b"\n".join([json.dumps(NOUL).encode(), b"", b"{broken", json.dumps(SCORE).encode()])
    path = tmp_path / name
    path.write_bytes(gzip.compress(lines) if name.endswith("gz") else lines)
    bad = []
    examples = list(read_examples([str(path)], "type", lambda place, _: bad.append(place)))
    assert [one.group for one in examples] == ["noul", "score"]
    assert bad == [f"{path}:3"]
    assert examples[1].place == f"{path}:4"


def test_a_file_that_cannot_be_read_is_one_clear_error(tmp_path):
    with pytest.raises(ConfigError, match="No such file"):
        list(read_examples([str(tmp_path / "none.jsonl")], "source", lambda *_: None))


@pytest.mark.parametrize("damage", [lambda whole: whole[:-12], lambda whole: whole[:12] + b"\xff" * 8 + whole[20:]])
def test_a_damaged_gzip_is_one_clear_error(tmp_path, damage):
    path = tmp_path / "data.jsonl.gz"
    path.write_bytes(damage(gzip.compress(json.dumps(NOUL).encode() * 99)))
    with pytest.raises(ConfigError, match=r"data\.jsonl\.gz: "):
        list(read_examples([str(path)], "source", lambda *_: None))


def answer(**fields):
    return Outcome(json.dumps({"answers": {"q": fields}}).encode(), is_answer=True)


def test_probabilities_of_each_form():
    assert read_outcome(parse(NOUL), answer(noul=0.25)).probabilities == (0.75, 0.25)
    told = answer(probabilities={"z": 0.5, "x": 0.2, "y": 0.3})
    assert read_outcome(parse(CHOICE), told).probabilities == (0.2, 0.3, 0.5)
    told = answer(probabilities={"0": 0.1, "1": 0.2, "2": 0.7})
    assert read_outcome(parse(SCORE), told).probabilities == (0.1, 0.2, 0.7)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{}",
        b"<html>",
        b'{"answers": []}',
        b'{"answers": {"q": {"noul": "x"}}}',
        b'{"answers": {"q": {"noul": 7}}}',
    ],
)
def test_what_is_no_answer_to_it_is_a_refusal(body):
    assert isinstance(read_outcome(parse(NOUL), Outcome(body, is_answer=True)), Refusal)


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b'{"detail": {"error_type": "x", "message": "too busy"}}', "too busy"),
        (b'{"detail": [{"msg": "too long"}, {"msg": "too wide"}]}', "too long; too wide"),
        (b'{"detail": "Not Found"}', "Not Found"),
        (b"Bad Gateway", "Bad Gateway"),
    ],
)
def test_a_refusal_keeps_the_servers_words(body, reason):
    assert read_outcome(parse(NOUL), Outcome(body, is_answer=False)).reason == reason


def test_a_server_that_is_not_there_is_said_after_one_example():
    class Nobody:
        asked = 0

        def answer(self, bodies):
            for _ in bodies:
                self.asked += 1
                yield Outcome(_unreachable("http://127.0.0.1:1", OSError("refused")), is_answer=False)

    nobody = Nobody()
    with pytest.raises(ConfigError, match="does not answer"):
        ask(nobody, [parse(NOUL)] * 9)
    assert nobody.asked == 1


def test_asking_keeps_the_order_and_ticks_for_each():
    class Answers:
        def answer(self, bodies):
            for number, _ in enumerate(bodies):
                yield answer(noul=number / 10) if number != 1 else Outcome(b"no", is_answer=False)

    ticks = []
    told = ask(Answers(), [parse(NOUL)] * 3, lambda: ticks.append(1))
    assert [type(one) for one in told] == [Prediction, Refusal, Prediction]
    assert len(ticks) == 3
