"""`ostraka eval` with a model of its own and against a running server: the fake engine's answers, measured."""

import gzip
import json
import subprocess
import sys
from pathlib import Path

import pytest

from ostraka_shared.model_folder import ModelFolder
from tests.cluster import Cluster
from tests.fake_model import make_fake_model


def evaluate(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "ostraka", "eval", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, check=False, text=True)


def examples() -> list[dict[str, object]]:
    told: list[dict[str, object]] = []
    for number in range(12):
        state, source = f"state {number // 2}" + "x" * number, "even" if number % 2 == 0 else "odd"
        told.append({"state": state, "question": "yes?", "type": "noul", "label": number % 3 == 0, "source": source})
        told.append(
            {
                "state": state,
                "question": "which?",
                "type": "choice",
                "label": 1,
                "options": ["a", "b", "c"],
                "source": source,
            }
        )
        told.append(
            {
                "state": state,
                "question": "how?",
                "type": "score",
                "label": 2,
                "levels": ["l", "m", "h"],
                "source": source,
            }
        )
    return told


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """36 good examples in two files, one of them gzip, with a broken line and one that the model refuses."""
    lines = [json.dumps(one) for one in examples()]
    lines.insert(5, "{broken")
    lines.insert(9, json.dumps({"state": 3, "question": "a number?", "type": "noul", "label": True, "source": "odd"}))
    (tmp_path / "one.jsonl").write_text("\n".join(lines[:20]))
    (tmp_path / "two.jsonl.gz").write_bytes(gzip.compress("\n".join(lines[20:]).encode()))
    return tmp_path


@pytest.fixture(params=["here", "server"])
def where(request: pytest.FixtureRequest, fake_model: ModelFolder, cluster: Cluster) -> list[str]:
    return [f"--model={fake_model.path}"] if request.param == "here" else [f"--server={cluster.url}", "--concurrency=3"]


def test_the_report_has_what_the_server_answers(data: Path, where: list[str], cluster: Cluster) -> None:
    done = evaluate(data / "one.jsonl", data / "two.jsonl.gz", "--json=-", *where)
    assert done.returncode == 1, done.stderr
    assert "one.jsonl:6: not JSON" in done.stderr
    assert "one.jsonl:10: " in done.stderr
    assert "2 lines could not be used" in done.stderr
    told = json.loads(done.stdout)
    assert len(told["bad_lines"]) == 2
    (report,) = told["reports"].values()
    right = 0
    for one in examples()[::3]:
        asked = {
            "model": "jev-latest",
            "state": one["state"],
            "questions": {"q": {"type": "noul", "instructions": "yes?"}},
        }
        p_yes = cluster.client.post("/v1/systemone", json=asked).json()["answers"]["q"]["noul"]
        right += (p_yes >= 0.5) == one["label"]
    rows = {row["group"]: row for row in report["forms"]["noul"]["groups"]}
    assert rows["all"]["examples"] == 12
    assert rows["all"]["accuracy"]["value"] == pytest.approx(right / 12)
    assert rows["even"]["examples"] == rows["odd"]["examples"] == 6
    assert {form: told["groups"][0]["examples"] for form, told in report["forms"].items()} == {
        "noul": 12,
        "choice": 12,
        "score": 12,
    }


def test_a_model_compared_with_its_own_server_does_not_differ(
    data: Path, fake_model: ModelFolder, cluster: Cluster
) -> None:
    done = evaluate(data / "two.jsonl.gz", f"--model={fake_model.path}", f"--compare={cluster.url}", "--json=-")
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert list(told["reports"]) == [str(fake_model.path), cluster.url]
    for form in told["comparison"]["forms"].values():
        assert form["groups"][0]["same_decision"] == 1
        assert form["groups"][0]["largest_move"] == 0


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
@pytest.mark.parametrize("target", ["folder", "file/below"])
def test_what_cannot_be_written_is_said_before_the_model_is_asked(data: Path, flag: str, target: str) -> None:
    (data / "folder").mkdir()
    (data / "file").touch()
    done = evaluate(data / "two.jsonl.gz", "--server=http://127.0.0.1:1", f"{flag}={data / target}")
    assert done.returncode == 1
    assert f"{data / target}" in done.stderr


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
