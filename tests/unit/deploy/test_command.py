"""What the command does before and after its subcommand."""

import os
import signal

import pytest

from ostraka.command import main
from ostraka.interrupts import ending_at_once


@pytest.mark.parametrize(("value", "port"), [("tcp://10.0.0.1:8017", 8017), ("9000", 9000)])
def test_a_kubernetes_services_variable_is_not_our_port(monkeypatch, value, port):
    monkeypatch.setitem(os.environ, "OSTRAKA_PORT", value)
    found = []
    monkeypatch.setattr("ostraka.serve_command.run", lambda values: found.append(values.port) or 0)
    assert main(["serve"]) == 0
    assert found == [port]


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
