from pathlib import Path

import pytest

from ostraka_shared.death_notes import CRASHED, KILLED, clear_notes, find_note, leave_note


def test_a_note_is_of_one_worker_and_one_incarnation(tmp_path) -> None:
    leave_note(tmp_path, "w0", 3, KILLED)
    assert find_note(tmp_path, "w0", 3) == KILLED
    assert find_note(tmp_path, "w0", 4) is None
    assert find_note(tmp_path, "w1", 3) is None


def test_the_next_ones_note_takes_its_place_and_nothing_piles_up(tmp_path) -> None:
    for incarnation in range(5):
        leave_note(tmp_path, "w0", incarnation, CRASHED)
    assert [find_note(tmp_path, "w0", each) for each in (3, 4)] == [None, CRASHED]
    assert len(list(tmp_path.iterdir())) == 1


def test_a_note_that_cannot_be_left_leaves_nothing(tmp_path, monkeypatch) -> None:
    def full(*_: object) -> None:
        raise OSError("full")

    monkeypatch.setattr(Path, "replace", full)
    with pytest.raises(OSError, match="full"):
        leave_note(tmp_path, "w0", 1, CRASHED)
    assert not list(tmp_path.iterdir())


def test_who_was_first_knows_best(tmp_path) -> None:
    leave_note(tmp_path, "w0", 1, CRASHED)
    leave_note(tmp_path, "w0", 1, KILLED)
    assert find_note(tmp_path, "w0", 1) == CRASHED


@pytest.mark.parametrize("text", ["", "1", "1 ", "1 else", "x killed", "é"])
def test_what_is_no_note_says_nothing(tmp_path, text: str) -> None:
    (tmp_path / "w0.died").write_text(text, encoding="utf-8")
    assert find_note(tmp_path, "w0", 1) is None


def test_a_peers_name_leads_nowhere_else(tmp_path) -> None:
    leave_note(tmp_path, "w0", 1, KILLED)
    inner = tmp_path / "inner"
    inner.mkdir()
    assert find_note(inner, "../w0", 1) is None
    leave_note(inner, "../w1", 1, KILLED)
    assert not (tmp_path / "w1.died").exists()


def test_two_that_note_the_same_end_at_once_do_not_meet(tmp_path, monkeypatch) -> None:
    replace = Path.replace

    def overtaken(path: Path, target: Path) -> Path:
        monkeypatch.setattr(Path, "replace", replace)
        leave_note(tmp_path, "w0", 1, CRASHED)
        return replace(path, target)

    monkeypatch.setattr(Path, "replace", overtaken)
    leave_note(tmp_path, "w0", 1, KILLED)
    assert find_note(tmp_path, "w0", 1) in (CRASHED, KILLED)
    assert len(list(tmp_path.iterdir())) == 1


def test_those_of_a_server_that_was_here_before_are_cleared(tmp_path) -> None:
    leave_note(tmp_path, "w0", 1, KILLED)
    clear_notes(tmp_path)
    assert find_note(tmp_path, "w0", 1) is None
