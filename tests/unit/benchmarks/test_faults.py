"""What the fault benchmark makes of what it saw: a count that is wrong here would praise a server that loses requests."""

import json
import math

import httpx
import pytest

from benchmarks.faults.asking import Asked, ask_for_failure, make_asked
from benchmarks.faults.outcomes import (
    Kind,
    Outcome,
    Sample,
    Window,
    count_duplicates,
    full_since,
    longest_shortage,
    percentile,
    summarize,
)
from benchmarks.faults.serving import sum_up
from benchmarks.faults.table import as_json, as_markdown, as_ms, as_s, cells


@pytest.mark.parametrize(
    ("values", "share", "found"),
    [([3.0], 0.99, 3.0), (range(1, 101), 0.99, 99), (range(1, 101), 1.0, 100), (range(1, 11), 0.5, 5), ([2, 1], 0, 1)],
)
def test_a_percentile_is_a_value_that_was_seen(values, share: float, found: float) -> None:
    assert percentile(values, share) == found


def test_no_values_have_no_percentile() -> None:
    assert math.isnan(percentile([], 0.99))


def samples(ready: str) -> list[Sample]:
    """One a second."""
    return [Sample(float(at), int(count)) for at, count in enumerate(ready)]


@pytest.mark.parametrize(
    ("ready", "found"),
    [("222", 0.0), ("2122", 2.0), ("21022", 3.0), ("2122102", 3.0), ("1122", 2.0), ("221", None), ("", None)],
)
def test_a_shortage_lasts_from_one_full_sample_to_the_next(ready: str, found: float | None) -> None:
    assert longest_shortage(samples(ready), 2) == found


@pytest.mark.parametrize(("ready", "found"), [("222", 0.0), ("2122", 2.0), ("221", None), ("", None)])
def test_since_when_all_are_ready(ready: str, found: float | None) -> None:
    assert full_since(samples(ready), 2) == found


def test_an_answer_delivered_twice_is_counted_and_none_delivered_is_not() -> None:
    ids = ["a", "b", "a", "", "", "a"]
    assert count_duplicates(Outcome(0.0, 1.0, Kind.RIGHT, answer_id=each) for each in ids) == 2


def test_a_row_tells_before_during_and_after_apart() -> None:
    outcomes = [
        Outcome(0.0, 0.1, Kind.RIGHT, 0, "a"),
        Outcome(2.0, 4.0, Kind.RIGHT, 2, "b"),
        Outcome(3.0, 3.5, Kind.LOST),
        Outcome(5.0, 5.2, Kind.WRONG, 0, "c"),
        Outcome(6.0, 6.3, Kind.FAILED, 1),
    ]
    row = summarize(Window("a fault", begun=1.0, injected=1.5, redispatched=7), outcomes, samples("2202222"), 2)
    assert (row.requests, row.retried, row.redispatched) == (5, 2, 7)
    assert (row.lost, row.failed, row.wrong, row.duplicates) == (1, 1, 1, 0)
    times = (row.p99_before_s, row.p99_during_s, row.p99_after_s, row.full_after_s)
    assert times == pytest.approx((0.1, 2.0, 0.5, 2.0))
    assert not row.is_kept


def test_what_is_never_full_again_has_no_after() -> None:
    row = summarize(Window("a fault", 1.0, 1.5), [Outcome(5.0, 5.1, Kind.RIGHT, 0, "a")], samples("221111"), 2)
    assert (row.full_after_s, row.p99_during_s) == (None, pytest.approx(0.1))
    assert math.isnan(row.p99_after_s)
    assert row.is_kept


@pytest.mark.parametrize("spoilt", [{"kind": Kind.LOST}, {"kind": Kind.WRONG}, {"kind": Kind.FAILED}])
def test_one_spoilt_request_breaks_the_promise(spoilt) -> None:
    right = Outcome(1.0, 1.1, Kind.RIGHT, 0, "a")
    window = Window("a fault", 1.0, 1.5)
    assert summarize(window, [right], samples("222"), 2).is_kept
    assert not summarize(window, [right, right], samples("222"), 2).is_kept
    assert not summarize(window, [right, Outcome(1.0, 1.1, **spoilt)], samples("222"), 2).is_kept


def test_the_table_and_the_json_say_the_same() -> None:
    row = summarize(Window("kill", 1.0, 1.5), [Outcome(0.0, 0.25, Kind.RIGHT, 1, "a")], samples("212"), 2)
    line = as_markdown(["fault"], [cells(row)[:1]]).splitlines()
    assert line == ["| fault |", "| ----- |", "| kill  |"]
    assert cells(row) == ["kill", "1", "1", "0", "0", "0", "0", "0", "250 ms", "-", "-", "1.00 s"]
    told = json.loads(as_json([row], model="int8"))
    assert told["model"] == "int8"
    assert (told["rows"][0]["p99_before_s"], told["rows"][0]["p99_during_s"]) == (0.25, None)


def test_how_times_read() -> None:
    assert (as_ms(1.2345), as_ms(math.nan)) == ("1,234 ms", "-")
    assert (as_s(0.0), as_s(None), as_s(math.nan), as_s(0.456)) == ("at once", "never", "-", "0.46 s")


def test_a_metric_is_summed_over_its_labels_and_not_over_names_that_begin_alike() -> None:
    text = '# HELP a_total A\na_total{reason="exit"} 2.0\na_total{reason="silent"} 1.0\na_total_more 9.0\nb 4.0\n'
    assert (sum_up(text, "a_total"), sum_up(text, "b"), sum_up(text, "c")) == (3.0, 4.0, 0.0)


@pytest.mark.parametrize(
    ("status", "body", "kind"),
    [(200, b"{1}", Kind.RIGHT), (200, b"{}", Kind.WRONG), (200, b"", Kind.WRONG), (500, b"{1}", Kind.FAILED)],
)
def test_an_answer_is_right_only_to_the_last_byte(status: int, body: bytes, kind: Kind) -> None:
    assert Asked(b"", expected=b"{1}").judge(httpx.Response(status, content=body)) is kind


def test_a_request_that_is_to_fail_must_fail_so() -> None:
    asked = ask_for_failure("<die>", "poisoned_request")
    assert asked.judge(httpx.Response(500, content=b'{"error_type":"poisoned_request"}')) is Kind.RIGHT
    assert asked.judge(httpx.Response(500, content=b'{"error_type":"engine_failed"}')) is Kind.WRONG
    assert asked.judge(httpx.Response(200, content=b"poisoned_request")) is Kind.WRONG


def test_the_questions_are_the_same_in_each_run_and_mixed() -> None:
    bodies = [each.body for each in make_asked(60)]
    assert bodies == [each.body for each in make_asked(60)]
    asked = [json.loads(body) for body in bodies]
    assert 40 < len({each["state"] for each in asked}) < 60
    assert {question["type"] for each in asked for question in each["questions"].values()} == {
        "noul",
        "choice",
        "score",
    }
    assert {len(each["questions"]) for each in asked} >= {1, 2, 3}
