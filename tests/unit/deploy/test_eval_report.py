import errno
import json
import sys

import pytest

from ostraka.eval_command import _whole_or_not_there
from ostraka.evaluation.examples import Prediction, parse_example
from ostraka.evaluation.plot import require_plotting
from ostraka.evaluation.report import build_comparison, build_report
from ostraka.evaluation.samples import decide, gather
from ostraka.evaluation.tables import describe_comparison, describe_report
from ostraka_shared.errors import ConfigError, OutOfSpace


def noul(p_yes, label, state="s", source="a"):
    return predict((1 - p_yes, p_yes), {"type": "noul", "label": label, "state": state, "source": source})


def choice(label, *probabilities, source="a"):
    options = [f"o{number}" for number in range(len(probabilities))]
    return predict(probabilities, {"type": "choice", "options": options, "label": label, "source": source})


def score(label, *probabilities):
    levels = [f"l{number}" for number in range(len(probabilities))]
    return predict(probabilities, {"type": "score", "levels": levels, "label": label})


def predict(probabilities, fields):
    return Prediction(
        parse_example(json.dumps({"state": "s", "question": "q"} | fields).encode(), "f:1"), probabilities
    )


def whole(report, form):
    return report["forms"][form]["groups"][0]


def test_a_noul_is_yes_from_a_half_on_and_a_choice_the_first_of_equals():
    assert [decide(noul(p, label=True)) for p in (0.49, 0.5, 0.51)] == [0, 1, 1]
    assert decide(choice(0, 0.2, 0.4, 0.4)) == 1


def test_measures_of_yes_and_no():
    row = whole(
        build_report([noul(0.9, True, "1"), noul(0.6, False, "2"), noul(0.2, False, "3"), noul(0.4, True, "4")]), "noul"
    )
    assert (row["examples"], row["yes_share"]) == (4, 0.5)
    assert row["accuracy"]["value"] == 0.5
    assert row["auc"]["value"] == 0.75
    assert row["brier"]["value"] == pytest.approx((0.01 + 0.36 + 0.04 + 0.36) / 4)
    assert row["accuracy"]["low"] == pytest.approx(0.15, abs=0.01)  # Wilson's of 2 in 4


def test_measures_of_a_choice():
    row = whole(build_report([choice(0, 0.6, 0.4), choice(1, 0.7, 0.2, 0.1)]), "choice")
    assert row["accuracy"]["value"] == 0.5
    assert row["chance"] == pytest.approx((1 / 2 + 1 / 3) / 2)
    assert row["ece"]["value"] == pytest.approx((0.4 + 0.7) / 2)  # said 0.6, came 1; said 0.7, came 0


def test_measures_of_a_score():
    told = [score(0, 0.5, 0.3, 0.2, 0.0), score(3, 0.0, 0.0, 0.9, 0.1), score(2, 1.0, 0.0, 0.0, 0.0)]
    row = whole(build_report(told), "score")
    assert row["accuracy"]["value"] == pytest.approx(1 / 3)
    assert row["within_one"]["value"] == pytest.approx(2 / 3)
    assert row["mae"]["value"] == pytest.approx((0.7 + 0.9 + 2.0) / 3)
    assert row["spearman"]["value"] == pytest.approx(0.5)  # expected 0.7, 2.1, 0 for 0, 3, 2


def test_levels_are_compared_from_lowest_to_highest_whatever_their_number():
    sample = gather([score(1, 0.0, 1.0), score(4, 0.0, 0.0, 0.0, 0.0, 1.0)])
    assert list(sample.placed) == list(sample.labelled) == [1, 1]


def test_groups_come_after_all_and_their_mean_counts_each_alike():
    told = [noul(0.9, True, str(i), "good") for i in range(8)] + [
        noul(0.9, False, "x", "bad"),
        noul(0.9, False, "y", "bad"),
    ]
    rows = build_report(told)["forms"]["noul"]["groups"]
    assert [row["group"] for row in rows] == ["all", "bad", "good", "mean of groups"]
    assert [row["accuracy"]["value"] for row in rows] == [0.8, 0, 1, 0.5]
    assert rows[1]["auc"]["value"] is None  # labels of one kind only
    json.dumps(rows, allow_nan=False)


def test_the_mean_of_groups_has_an_interval_of_its_own():
    """Four groups of 25, each right in half: the mean is as sure as 100 examples are."""
    told = [noul(0.9, i % 2 == 0, f"{group} {i}", group) for group in "abcd" for i in range(25)]
    rows = {row["group"]: row["brier"] for row in build_report(told)["forms"]["noul"]["groups"]}
    width = {name: cell["high"] - cell["low"] for name, cell in rows.items()}
    assert width["mean of groups"] == pytest.approx(width["all"], rel=0.2)
    assert width["mean of groups"] < 0.7 * width["a"]


def test_the_mean_difference_of_groups_counts_each_alike():
    same = [(noul(0.9, True, str(i), "same"),) * 2 for i in range(9)]
    better = [(noul(0.1, True, "x", "better"), noul(0.9, True, "x", "better"))]
    rows = build_comparison([*same, *better])["forms"]["noul"]["groups"]
    assert [(row["group"], row["accuracy"]["value"]) for row in rows] == [
        ("all", pytest.approx(0.1)), ("better", 1), ("same", 0), ("mean of groups", 0.5)
    ]  # fmt: skip
    assert "mean of groups" in describe_comparison(build_comparison([*same, *better]))


def test_questions_on_one_state_are_resampled_together():
    apart = whole(build_report([noul(0.9, i % 2 == 0, str(i)) for i in range(40)]), "noul")
    together = whole(build_report([noul(0.9, i < 20, str(i // 20)) for i in range(40)]), "noul")
    width = {
        name: row["brier"]["high"] - row["brier"]["low"] for name, row in (("apart", apart), ("together", together))
    }
    assert width["together"] > 2 * width["apart"]


def test_differences_are_paired():
    told = [(noul(0.4 + i / 100, True, str(i)), noul(0.41 + i / 100, True, str(i))) for i in range(20)]
    row = whole(build_comparison(told), "noul")
    assert row["accuracy"]["value"] == pytest.approx(1 / 20)  # 0.49 became 0.5
    assert row["same_decision"] == 19 / 20
    assert row["mean_move"] == pytest.approx(0.01)
    assert row["largest_move"] == pytest.approx(0.01)
    # Each moved alike, so the difference is sure, far more than either value is.
    assert row["brier"]["low"] < row["brier"]["value"] < row["brier"]["high"] < 0


def test_a_model_against_itself_does_not_differ():
    told = [choice(i % 3, 0.5, 0.3, 0.2) for i in range(9)]
    row = whole(build_comparison([(one, one) for one in told]), "choice")
    assert row["accuracy"] == row["ece"] == {"value": 0, "low": 0, "high": 0}
    assert (row["same_decision"], row["largest_move"]) == (1, 0)


def test_the_tables_say_what_the_report_says():
    told = [noul(0.95, True, "1", "a"), noul(0.05, False, "2", "b"), choice(0, 0.6, 0.4), score(1, 0.1, 0.9)]
    text = describe_report(build_report(told))
    for part in (
        "yes/no\n",
        "choice\n",
        "score\n",
        "mean of groups",
        "AUC",
        "1.000 [0.342, 1.000]",
        "yes from",
        "Wilson",
    ):
        assert part in text
    (last,) = [
        line for line in text.splitlines() if line.startswith("0.9-1.0") and " 0.950  1.000" in line and "o" in line
    ]
    assert last.endswith("o.x")


def test_the_comparison_is_signed():
    pairs = [(noul(0.4, True, "1"), noul(0.6, True, "1"))] * 3
    assert "+1.000 [+1.000, +1.000]" in describe_comparison(build_comparison(pairs))


def test_without_matplotlib_the_plot_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(ConfigError, match=r"-e .\.\[eval\]"):
        require_plotting()


def test_a_group_is_told_as_a_terminal_can_take_it_whatever_the_data_hold():
    told = [noul(0.9, True, "1", source="\x1b[31mred\r\n\0"), noul(0.1, False, "2", source="s" * 5000)]
    for text in (
        describe_report(build_report(told)),
        describe_comparison(build_comparison([(one, one) for one in told])),
    ):
        assert text.replace("\n", "").isprintable()
        assert "\n\ufffd[31mred" in text
        assert max(map(len, text.splitlines())) < 200


def test_results_that_found_no_room_are_not_there_in_part(tmp_path):
    target = tmp_path / "report.json"
    target.write_text("{")
    with pytest.raises(OutOfSpace, match=str(tmp_path)), _whole_or_not_there(target):
        raise OSError(errno.ENOSPC, "No space left on device")
    assert not target.exists()
