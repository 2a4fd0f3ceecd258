"""Files of requests: which lines are asked again by --resume, and that the output is whole whenever a run ends."""

import json
import resource
from pathlib import Path

import pytest

from ostraka.answerers import Outcome
from ostraka.decide_fates import Fate, as_outcome, error_line, read_fate
from ostraka.decide_lines import decide_lines
from ostraka_shared.errors import ConfigError, OutOfSpace

AWAY = error_line("unreachable", "away")
REFUSED = b'{"detail":[{"loc":["body"],"msg":"no","type":"value_error"}]}'


class Killed(Exception):
    pass


class Script:
    """Answers each body as it is told, or else with itself; `dies_after` so many outcomes."""

    def __init__(self, outcomes=(), dies_after=None):
        self.outcomes = dict(outcomes)
        self.dies_after = dies_after
        self.asked = []

    def answer(self, bodies):
        for body in bodies:
            if len(self.asked) == self.dies_after:
                raise Killed
            self.asked.append(body)
            line = self.outcomes.get(body, answered(body))
            yield Outcome(line, is_answer=line not in (AWAY, REFUSED))


def answered(body):
    return json.dumps({"answers": body.decode()}).encode()


@pytest.fixture
def files(tmp_path: Path):
    requests, output = tmp_path / "requests.jsonl", tmp_path / "answers.jsonl"
    requests.write_text("a\nb\nc\nd\n")
    return requests, output


def decide(files, script):
    return decide_lines(str(files[0]), files[1], lambda: script)


def test_what_had_no_answer_is_asked_again_in_its_place_and_what_was_refused_is_not(files, capsys):
    assert decide(files, Script({b"a": AWAY, b"b": REFUSED, b"d": AWAY})) == 1
    said = capsys.readouterr().err
    assert "1 of 4 requests were refused: their lines say why\n" in said
    assert "2 of 4 requests were not answered: with --output, --resume asks them again\n" in said
    again = Script({b"d": AWAY})
    assert decide(files, again) == 1
    assert again.asked == [b"a", b"d"]
    assert files[1].read_bytes().splitlines() == [answered(b"a"), REFUSED, answered(b"c"), AWAY]
    assert "1 of 4 requests were not answered" in capsys.readouterr().err
    assert decide(files, Script()) == 1
    nothing = Script()
    assert (decide(files, nothing), nothing.asked) == (1, [])
    assert "1 of 4 requests were refused" in capsys.readouterr().err
    assert set(files[1].parent.iterdir()) == set(files), "nothing is left beside them"


def test_all_that_was_away_is_answered_and_then_the_exit_code_is_0(files):
    assert decide(files, Script(dict.fromkeys([b"a", b"b", b"c", b"d"], AWAY))) == 1
    assert decide(files, Script()) == 0
    assert files[1].read_bytes().splitlines() == [answered(body) for body in (b"a", b"b", b"c", b"d")]


@pytest.mark.parametrize("dies_after", [0, 1, 2, 3])
def test_a_run_that_ends_while_it_asks_again_loses_nothing(files, dies_after):
    """Two lines without an answer, one that was cut short, one never written."""
    files[1].write_bytes(AWAY + b"\n" + AWAY + b"\n" + answered(b"c")[:5])
    dying = Script(dies_after=dies_after)
    with pytest.raises(Killed):
        decide(files, dying)
    assert all(read_fate(line) for line in files[1].read_bytes().splitlines())
    again = Script()
    assert decide(files, again) == 0
    assert dying.asked + again.asked == [b"a", b"b", b"c", b"d"]
    assert files[1].read_bytes().splitlines() == [answered(body) for body in (b"a", b"b", b"c", b"d")]


def test_a_full_disk_is_named_and_the_run_can_go_on(files):
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(answered(b"a")) + 5, before[1]))
    try:
        with pytest.raises(OutOfSpace, match=f"the disk of {files[1].parent} is full"):
            decide(files, Script())
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    again = Script()
    assert (decide(files, again), again.asked) == (0, [b"b", b"c", b"d"])
    assert files[1].read_bytes().splitlines() == [answered(body) for body in (b"a", b"b", b"c", b"d")]


def test_a_journal_with_a_line_cut_short_or_put_in_already_changes_nothing_else(files):
    files[1].write_bytes(answered(b"a") + b"\n" + AWAY + b"\n" + AWAY + b"\n")
    journal = files[1].with_name("answers.jsonl.again")
    journal.write_bytes(b"0\t%s\n1\t%s\n2\t%s" % (AWAY, answered(b"b"), answered(b"x")[:-3]))
    script = Script()
    assert decide(files, script) == 0
    assert script.asked == [b"c", b"d"]
    assert files[1].read_bytes().splitlines() == [answered(body) for body in (b"a", b"b", b"c", b"d")]


def test_the_journal_of_an_output_that_is_gone_is_not_taken(files):
    files[1].with_name("answers.jsonl.again").write_bytes(b"0\t" + answered(b"x") + b"\n")
    assert decide(files, Script({b"a": AWAY})) == 1
    assert files[1].read_bytes().splitlines()[0] == AWAY


@pytest.mark.parametrize(
    ("line", "fate"),
    [
        (answered(b"a"), Fate.ANSWERED),
        (REFUSED, Fate.REFUSED),
        (error_line("poisoned_request", ""), Fate.REFUSED),
        (error_line("body_too_large", ""), Fate.REFUSED),
        (AWAY, Fate.UNANSWERED),
        (error_line("rate_limit_error", ""), Fate.UNANSWERED),
        (error_line("overloaded_error", ""), Fate.UNANSWERED),
        (error_line("deadline_exceeded", ""), Fate.UNANSWERED),
        (error_line("authentication_error", ""), Fate.UNANSWERED),
        (b'{"detail":"Too many requests"}', Fate.UNANSWERED),
        (b"my notes", None),
        (b"[1]", None),
        (b"{}", None),
    ],
)
def test_the_fate_of_a_line(line, fate):
    assert read_fate(line) is fate


@pytest.mark.parametrize("body", [b"<html>\n502 Bad Gateway\n", b"Internal Server Error", b"\xff", b'{"detail":\n""}'])
def test_what_is_no_line_of_an_output_is_quoted_in_one(body):
    line = as_outcome(502, body)
    assert b"\n" not in line
    assert read_fate(line) is Fate.UNANSWERED
    assert b"HTTP 502" in line
    assert as_outcome(503, AWAY) == AWAY


@pytest.mark.parametrize("body", [b'{"detail":"Error"}', b"<html>\n413 Request Entity Too Large\n", b""])
def test_what_was_too_large_for_a_server_or_a_proxy_is_so_again(body):
    """`--compat jevos` and proxies do not say so in a line; a line does not hold the status."""
    line = as_outcome(413, body)
    assert b"\n" not in line
    assert read_fate(line) is Fate.REFUSED
    ours = error_line("body_too_large", "")
    assert as_outcome(413, ours) == ours


def test_one_run_at_a_time_writes_a_file_also_after_it_was_mended(files):
    decide(files, Script({b"b": AWAY}))
    before = files[1].read_bytes()

    class Rival(Script):
        def answer(self, bodies):
            for outcome in super().answer(bodies):
                with pytest.raises(ConfigError, match="is being written by another run"):
                    decide(files, Script())
                yield outcome

    files[0].write_text("a\nb\nc\nd\ne\nf\n")
    assert decide(files, Rival()) == 0
    assert (
        files[1].read_bytes() == before.replace(AWAY, answered(b"b")) + answered(b"e") + b"\n" + answered(b"f") + b"\n"
    )
    assert decide(files, Script()) == 0  # and then it is anybody's again


def test_what_editors_put_before_a_text_is_no_part_of_a_request(files):
    files[0].write_bytes(b"\xef\xbb\xbfa\r\n\xef\xbb\xbf\r\n\xef\xbb\xbfb\r\n")
    script = Script()
    assert decide(files, script) == 0
    assert script.asked == [b"a", b"b"]
