"""A fork whose channel ends before its zygote does: waited for, and not without end."""

import signal
import socket
from types import SimpleNamespace

import pytest

from ostraka import forking
from ostraka.children import ForkFailed
from ostraka.forking import SILENT_S, ForkedProcess, Zygote, awaited_channels
from ostraka.restarts import RestartPolicy
from tests.clocks import FakeClock


def test_a_fork_of_a_zygote_that_is_dying_is_asked_for_again_once_its_end_is_seen(monkeypatch):
    """Killed, it has closed its socket some milliseconds before it can be reaped."""
    FakeClock().install(monkeypatch, forking)
    zygote = Zygote("zygote", lambda _: [], RestartPolicy(lambda: 1.0))
    zygote.process = SimpleNamespace(pid=0, poll=lambda: None)
    zygote.control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    zygote.control.settimeout(0.0)
    theirs.send(b"loaded")
    theirs.close()
    fork = zygote.fork(["serve"])
    assert fork.poll() is None
    zygote.process = None
    with pytest.raises(ForkFailed) as failed:
        fork.poll()
    assert failed.value.may_be_repeated
    zygote.hang_up()


def test_a_zygote_that_hangs_once_it_has_closed_the_channel_is_killed_and_meanwhile_wakes_nobody(monkeypatch):
    clock = FakeClock()
    clock.install(monkeypatch, forking)
    zygote = Zygote("zygote", lambda _: [], RestartPolicy(lambda: 1.0))
    signals = []
    zygote.process = SimpleNamespace(pid=0, poll=lambda: None, send_signal=signals.append)
    zygote.loaded_incarnation, zygote.heard_at, zygote.asked = zygote.incarnation, clock.now, 1
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    ours.settimeout(0.0)
    fork = ForkedProcess(zygote, ours, 1)
    children = [SimpleNamespace(process=fork)]
    assert awaited_channels(children) == [ours]
    theirs.close()
    assert fork.poll() is None, "another may come of it"
    assert awaited_channels(children) == [], "at its end it would wake the supervisor again and again"
    clock.advance(SILENT_S + 1)
    with pytest.raises(ForkFailed, match="does not answer"):
        fork.poll()
    assert signals == [signal.SIGKILL]
