"""The real matplotlib, which takes a second to import."""

import json
from pathlib import Path
from typing import Any

import pytest

from ostraka.evaluation.examples import Prediction, parse_example
from ostraka.evaluation.plot import draw_reliability
from ostraka.evaluation.report import build_report


def predict(probabilities: tuple[float, ...], **fields: Any) -> Prediction:
    line = json.dumps({"state": "s", "question": "q"} | fields).encode()
    return Prediction(parse_example(line, "f:1"), probabilities)


def test_the_plot_is_a_png_with_a_panel_for_each_form(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    noul = predict((0.1, 0.9), type="noul", label=True)
    choice = predict((0.6, 0.4), type="choice", options=["o0", "o1"], label=0)
    report = build_report([noul, choice])
    one, two = tmp_path / "one.png", tmp_path / "two.png"
    draw_reliability({"m": build_report([noul])}, one)
    draw_reliability({"m": report, "n": report}, two)
    sizes = [file.read_bytes()[16:24] for file in (one, two)]  # width and height in the PNG header
    assert one.read_bytes().startswith(b"\x89PNG\r\n")
    assert int.from_bytes(sizes[1][:4]) == 2 * int.from_bytes(sizes[0][:4])
