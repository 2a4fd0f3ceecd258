"""What the command does before and after its subcommand."""

import os
import signal

import pytest
import structlog

from ostraka.command import main
from ostraka.interrupts import ending_at_once


@pytest.mark.parametrize(("value", "port"), [("tcp://10.0.0.1:8017", 8017), ("9000", 9000)])
def test_a_kubernetes_services_variable_is_not_our_port(monkeypatch, value, port):
    monkeypatch.setitem(os.environ, "OSTRAKA_PORT", value)
    found = []
    monkeypatch.setattr("ostraka.serve_command.run", lambda values: found.append(values.port) or 0)
    assert main(["serve"]) == 0
    assert found == [port]


@pytest.mark.parametrize(
    ("umask", "modes"), [(0o000, (0o775, 0o664)), (0o022, (0o755, 0o644)), (0o077, (0o700, 0o600))]
)
def test_nobody_else_may_write_to_what_a_command_makes(monkeypatch, tmp_path, umask, modes):
    def run(_):
        (tmp_path / "folder").mkdir()
        (tmp_path / "file").touch()
        return 0

    monkeypatch.setattr("ostraka.serve_command.run", run)
    before = os.umask(umask)
    try:
        assert main(["serve"]) == 0
    finally:
        assert os.umask(before) == umask
    assert tuple((tmp_path / name).stat().st_mode & 0o777 for name in ("folder", "file")) == modes


def test_a_warning_is_not_among_the_answers(monkeypatch, capsys):
    monkeypatch.setattr("ostraka.serve_command.run", lambda _: structlog.get_logger().warning("a_warning") or 0)
    assert main(["serve"]) == 0
    said = capsys.readouterr()
    assert (said.out, "a_warning" in said.err) == ("", True)


def test_afterwards_ctrl_c_is_what_it_was():
    before = signal.getsignal(signal.SIGINT)
    with ending_at_once():
        assert signal.getsignal(signal.SIGINT) == signal.SIG_DFL
    assert signal.getsignal(signal.SIGINT) == before
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with ending_at_once():
            assert signal.getsignal(signal.SIGINT) == signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)
