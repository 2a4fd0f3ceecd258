"""A checkpoint of one's own, from its files to an answer: `model build`, then `decide`, against a float64 forward pass."""

import json
import math
from pathlib import Path

import pytest

from ostraka.__main__ import main
from tests.unit.worker.build.forms import FORMS, Form, random_tensors, tokenizer, write_folder
from tests.unit.worker.build.plain_forward import logits

STATE = "The parcel arrived on Tuesday. " * 4
QUESTIONS = {"late": "Is it late?", "tuesday": "Is it Tuesday's?"}


def expected(form: Form, question: str) -> float:
    """P(yes), with the tokens of the whole prompt at once."""
    bos = form.specials[form.bos] if form.bos is not None else ""
    prompt = f"{bos}<evidence>\n{STATE.strip()}\n</evidence>\n\nQuestion: {question}\nAnswer:"
    ids = tokenizer(form).encode(prompt, add_special_tokens=False).ids
    no, yes = (logits(form, random_tensors(form), ids)[form.pieces.index(piece)] for piece in ("ĠNo", "ĠYes"))
    return 1 / (1 + math.exp(no - yes))


@pytest.mark.parametrize("name", ["minicpm5", "qwen2", "qwen3"])
def test_from_a_folder_to_an_answer(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    form = FORMS[name]
    source = write_folder(tmp_path / name, form, random_tensors(form), shards=2)
    assert main(["model", "build", str(source), "--form", "yes-no", "--output", str(tmp_path / "model")]) == 0
    questions = {key: {"type": "noul", "instructions": text} for key, text in QUESTIONS.items()}
    request = tmp_path / "request.json"
    request.write_text(json.dumps({"model": "jev-latest", "state": STATE, "questions": questions}))
    capsys.readouterr()
    assert main(["decide", str(request), "--model", str(tmp_path / "model")]) == 0
    answers = json.loads(capsys.readouterr().out)["answers"]
    for key, text in QUESTIONS.items():
        assert answers[key]["noul"] == pytest.approx(expected(form, text), abs=1e-4)
