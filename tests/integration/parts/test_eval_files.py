"""What `ostraka eval` reads and writes, without a server."""

import json
from pathlib import Path

import pytest

from ostraka_shared.model_folder import ModelFolder
from tests.fake_model import make_fake_model
from tests.integration.labelled import evaluate, examples


def test_groups_by_another_field_tables_and_files(data: Path, fake_model: ModelFolder, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    plot, report = tmp_path / "new" / "plot.png", tmp_path / "other" / "report.json"
    files = (f"--plot={plot}", f"--json={report}")
    done = evaluate(data / "two.jsonl.gz", f"--model={fake_model.path}", "--by=question", *files)
    assert done.returncode == 0, done.stderr
    assert "yes/no\n" in done.stdout
    assert plot.read_bytes().startswith(b"\x89PNG")
    forms = next(iter(json.loads(report.read_text())["reports"].values()))["forms"]
    assert [row["group"] for row in forms["choice"]["groups"]] == ["all"]


def test_a_model_that_answers_nothing_is_an_error(data: Path, tmp_path: Path) -> None:
    failing = make_fake_model(tmp_path / "failing", context_tokens=3)
    done = evaluate(data / "two.jsonl.gz", f"--model={failing.path}")
    assert done.returncode == 1
    assert "answered none of" in done.stderr


@pytest.mark.parametrize("flag", ["--json", "--plot"])
@pytest.mark.parametrize("target", ["folder", "file/below", "file"])
def test_what_cannot_be_written_is_said_before_the_model_is_asked(data: Path, flag: str, target: str) -> None:
    (data / "folder").mkdir()
    (data / "file").touch()
    done = evaluate(data / "two.jsonl.gz", "--server=http://127.0.0.1:1", f"{flag}={data / target}")
    assert done.returncode == 1
    assert f"{data / target}" in done.stderr
    assert ("never written over a file" in done.stderr) == (target == "file")


def test_no_example_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "empty.jsonl").write_text("\n\n")
    done = evaluate(tmp_path / "empty.jsonl")
    assert done.returncode == 1
    assert "no labelled example" in done.stderr


def test_many_bad_lines_are_counted_and_ten_told(tmp_path: Path, fake_model: ModelFolder) -> None:
    good = json.dumps(examples()[0])
    (tmp_path / "data.jsonl").write_text("[]\n" * 30 + good)
    done = evaluate(tmp_path / "data.jsonl", f"--model={fake_model.path}")
    assert done.returncode == 1
    assert done.stderr.count("not a JSON object") == 10
    assert "30 lines could not be used" in done.stderr
