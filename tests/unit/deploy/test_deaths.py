import signal

import pytest

from ostraka import deaths as deaths_module
from ostraka.deaths import RECENT_S, Deaths, read_oom_kills
from ostraka_shared.death_notes import CRASHED, KILLED, find_note
from tests.clocks import FakeClock


@pytest.fixture
def clock(monkeypatch) -> FakeClock:
    return FakeClock().install(monkeypatch, deaths_module)


@pytest.mark.parametrize(
    ("code", "cause"),
    [(-signal.SIGKILL, KILLED), (-signal.SIGSEGV, CRASHED), (-signal.SIGABRT, CRASHED), (1, CRASHED), (0, CRASHED)],
)
def test_only_a_sigkill_comes_from_outside(tmp_path, clock, code: int, cause: str) -> None:
    Deaths(tmp_path, lambda: 6).note("w0", 1, code)
    assert find_note(tmp_path, "w0", 1) == cause


def test_a_kill_for_want_of_memory_counts_as_a_crash_and_so_do_those_soon_after(tmp_path, clock) -> None:
    counts = iter([6, 7, 7, 7])
    deaths = Deaths(tmp_path, lambda: next(counts))
    deaths.note("w0", 1, -signal.SIGKILL)
    clock.advance(RECENT_S - 1)
    deaths.note("w1", 1, -signal.SIGKILL)
    clock.advance(RECENT_S + 1)
    deaths.note("w0", 2, -signal.SIGKILL)
    assert [find_note(tmp_path, *of) for of in (("w1", 1), ("w0", 2))] == [CRASHED, KILLED]


def test_the_first_such_kill_too(tmp_path, clock) -> None:
    counts = iter([6, 7])
    Deaths(tmp_path, lambda: next(counts)).note("w0", 1, -signal.SIGKILL)
    assert find_note(tmp_path, "w0", 1) == CRASHED


def test_where_the_kernel_does_not_say_each_kill_counts_as_a_crash(tmp_path, clock, monkeypatch) -> None:
    monkeypatch.setattr(deaths_module, "VMSTAT", tmp_path / "none")
    Deaths(tmp_path).note("w0", 1, -signal.SIGKILL)
    assert (read_oom_kills(), find_note(tmp_path, "w0", 1)) == (None, CRASHED)


def test_the_kernels_count_is_read(tmp_path, monkeypatch) -> None:
    (tmp_path / "vmstat").write_text("nr_free_pages 1\noom_kill 6\noom_kill_other 9\n")
    monkeypatch.setattr(deaths_module, "VMSTAT", tmp_path / "vmstat")
    assert read_oom_kills() == 6


def test_a_folder_that_is_gone_stops_nothing(tmp_path, clock) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    deaths = Deaths(folder, lambda: 6)
    folder.rmdir()
    deaths.note("w0", 1, -signal.SIGKILL)
    assert find_note(folder, "w0", 1) is None
