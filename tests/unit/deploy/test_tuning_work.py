"""The folder that a tuning works in."""

import pytest

from ostraka.tuning.settings import TuneSettings
from ostraka.tuning.work_folder import LOG_FILE, PLACE_FILE, open_work
from ostraka_shared.errors import ConfigError


def settings(folder, *, resume=False):
    return TuneSettings(
        ("data.jsonl",), folder / "m", "m", "int8", folder, None, None, 1.0, None, None, None, 1e-4, 1, 1, resume
    )


def end(folder, bad, kept=None):
    """A tuning that had kept that when it ended so."""
    with open_work(settings(folder)) as work:
        assert (work / LOG_FILE).exists()
        if kept:
            (work / kept).write_bytes(b"x")
        raise bad


def test_what_ends_before_anything_was_kept_leaves_nothing(tmp_path):
    with pytest.raises(ConfigError, match="too few"):
        end(tmp_path, ConfigError("too few"))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("kept", [LOG_FILE, PLACE_FILE, "m.safetensors", "notes.txt"])
def test_what_was_kept_stays(tmp_path, kept):
    with pytest.raises(KeyboardInterrupt):
        end(tmp_path, KeyboardInterrupt(), kept)
    assert (tmp_path / "m.tuning" / kept).read_bytes() == b"x"


def test_what_a_killed_one_left_is_not_in_the_way(tmp_path):
    (tmp_path / "m.tuning").mkdir()
    (tmp_path / "m.tuning" / LOG_FILE).write_bytes(b"old")
    with open_work(settings(tmp_path)) as work:
        assert (work / LOG_FILE).read_bytes() == b""
