"""`ostraka eval` with a model of its own and against a running server: the fake engine's answers, measured."""

import json
from pathlib import Path

import pytest

from ostraka_shared.model_folder import ModelFolder
from tests.cluster import Cluster
from tests.integration.labelled import evaluate, examples


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
