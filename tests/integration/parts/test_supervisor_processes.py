"""The supervisor with real, tiny processes. Each writes what it lives through to a journal, one line an event."""

import os
import signal
import subprocess
import sys

import psutil
import pytest

from tests.waiting import is_dead, wait_until

CHILD = """
import os, signal, socket, sys
name, incarnation, folder, *control = sys.argv[1:]
def note(event):
    with open(folder + "/journal", "a") as journal:
        journal.write(f"{name} {incarnation} {event} {os.getpid()}\\n")
def has(flag):
    return os.path.exists(f"{folder}/{name}.{flag}")
signal.signal(signal.SIGINT, lambda *_: note("INT"))
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
note("start")
if has("crash"):
    sys.exit(7)
if control:
    channel = socket.socket(fileno=int(control[0]))
    while not signal.sigtimedwait([signal.SIGTERM], 0.05):
        channel.send(b'{"ready_workers": %d, "figures": {}}' % (0 if has("nobody_ready") else 2))
else:
    signal.sigwait([signal.SIGTERM])
note("TERM")
while has("stubborn"):
    signal.pause()
note("end")
"""


DRIVER = """
import json, socket, sys
from pathlib import Path
from ostraka import stopping
from ostraka.children import Child
from ostraka.front_desk import FrontDesk
from ostraka.gateway_child import GatewayChild
from ostraka.generation import Generation
from ostraka.recycling import Recycling
from ostraka.restarts import RestartPolicy
from ostraka.ground import Ground
from ostraka.rolling import Rolling
from ostraka.serve_config import StopConfig
from ostraka.signals import taken_signals
from ostraka.succession import Succession
from ostraka.supervisor import Supervisor
folder, child = Path(sys.argv[1]), sys.argv[2]
stopping.SECOND_SIGNAL_S = 0.0
listener = socket.create_server(("127.0.0.1", 0))
def make(kind, name):
    def command(incarnation):
        return ["-S", "-c", child, name, str(incarnation), str(folder), *map(str, made.pass_fds)]
    made = kind(name, command, RestartPolicy(lambda: 0.0))
    return made
first = Generation(1, [make(GatewayChild, "gateway")], [make(Child, "w0"), make(Child, "w1")])
first.figures_at, first.workers_at = [f"{folder}/figures.sock"], [f"{folder}/workers.sock"]
succession = Succession(first)
with taken_signals() as signals, FrontDesk(folder) as desk:
    rolling = Rolling(desk, succession, None, 20.0)
    ground = Ground(folder, desk, succession)
    supervisor = Supervisor(succession, rolling, listener, StopConfig(20.0, 0.0), Recycling(0), ground)
    sys.exit(supervisor.run(signals))
"""


class Real:
    def __init__(self, folder):
        self.folder = folder
        self.process = None

    def flag(self, name):
        (self.folder / name).touch()

    def start(self):
        self.output = (self.folder / "output").open("wb")
        self.process = subprocess.Popen(
            [sys.executable, "-c", DRIVER, str(self.folder), CHILD],
            stdout=self.output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )

    @property
    def journal(self):
        path = self.folder / "journal"
        return [line.rsplit(" ", 1)[0] for line in path.read_text().splitlines()] if path.exists() else []

    def pid(self, event):
        return next(
            int(line.split()[-1]) for line in (self.folder / "journal").read_text().splitlines() if event in line
        )

    def wait_for(self, *events):
        wait_until(lambda: set(events) <= set(self.journal))

    def wait_serving(self):
        self.wait_for("gateway 1 start", "w0 1 start", "w1 1 start")
        wait_until(lambda: b"listening" in (self.folder / "output").read_bytes())

    def stop(self, number=signal.SIGTERM):
        self.process.send_signal(number)

    def exit_code(self):
        return self.process.wait(20)

    def children(self):
        return psutil.Process(self.process.pid).children()

    def close(self):
        if self.process:
            self.process.kill()
            self.process.wait()
            self.output.close()


@pytest.fixture
def real(tmp_path):
    found = Real(tmp_path)
    yield found
    found.close()


def test_a_whole_life(real):
    real.start()
    real.wait_serving()
    os.kill(real.pid("w1 1 start"), signal.SIGKILL)
    real.wait_for("w1 2 start")
    real.stop()
    assert real.exit_code() == 0
    ends = [line for line in real.journal if line.endswith("end")]
    assert ends[0] == "gateway 1 end"
    assert sorted(ends[1:]) == ["w0 1 end", "w1 2 end"]
    assert real.journal.index("gateway 1 end") < real.journal.index("w0 1 TERM")


def test_a_crash_at_start_is_exit_1(real):
    real.flag("w0.crash")
    real.flag("w1.crash")
    real.flag("gateway.nobody_ready")
    real.start()
    assert real.exit_code() == 1
    assert real.journal.count("w0 1 start") == 1
    assert "cannot_keep_up" in (real.folder / "output").read_text()


def test_the_second_signal_does_not_wait(real):
    real.flag("gateway.stubborn")
    real.start()
    real.wait_serving()
    children = real.children()
    real.stop()
    real.wait_for("gateway 1 TERM")
    real.stop()
    assert real.exit_code() == 1
    wait_until(lambda: all(map(is_dead, children)))
    assert "w0 1 TERM" not in real.journal


def test_kill_9_of_the_supervisor_leaves_nobody(real):
    real.start()
    real.wait_serving()
    children = real.children()
    assert len(children) == 3
    real.process.kill()
    wait_until(lambda: all(map(is_dead, children)))
    assert not [line for line in real.journal if line.endswith("end")]


def test_ctrl_c_in_the_terminal_is_the_supervisors_alone(real):
    """A terminal sends SIGINT to its whole foreground group."""
    real.start()
    real.wait_serving()
    os.killpg(real.process.pid, signal.SIGINT)
    assert real.exit_code() == 0
    assert not [line for line in real.journal if line.endswith("INT")]
    assert real.journal.index("gateway 1 end") < real.journal.index("w0 1 TERM")
