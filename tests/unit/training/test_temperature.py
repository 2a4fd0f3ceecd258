from pathlib import Path

import numpy as np

from ostraka.tuning.encoding import asked_of
from ostraka_worker.build.builder import Form, build_source
from ostraka_worker.build.progress import Silent
from ostraka_worker.engines import load_engine
from tests.unit.deploy.tuning_examples import example
from tests.unit.worker.build.tiny import write_tiny
from training.temperature import ask, draw, encode, only

CHOICE = {"type": "choice", "question": "Which?", "options": ["a", "b", "c"], "label": 2}


def test_every_prompt_of_a_folder_is_asked_once_and_told_apart_by_form(tmp_path: Path) -> None:
    source = write_tiny(tmp_path / "m.gguf")
    folder = build_source(source, tmp_path / "m", "m", "fp32", Form("0", "1"), Silent())
    encoded = encode(folder, [example(label=True), example(**CHOICE), example(state="x" * 600)])
    margins = ask(load_engine(folder, 1), encoded)
    asked = asked_of(encoded)
    assert margins.shape == asked.targets.shape == (4,)
    assert asked.owners.tolist() == [0, 1, 1, 1]
    alone = ask(load_engine(folder, 1), encoded[1:])
    np.testing.assert_array_equal(margins[1:], alone)
    own, own_margins = only("choice", encoded, margins)
    assert own == encoded[1:]
    np.testing.assert_array_equal(own_margins, alone)


def test_few_are_drawn_of_many_and_always_the_same() -> None:
    many = [example(state=str(n)) for n in range(50)]
    assert draw(many, 60) == many
    assert draw(many, 5) == draw(many, 5)
    assert len(draw(many, 5)) == 5
