"""The supervisor twice: with children that are only said to be there, and with real tiny processes."""

import json
import os
import signal
import subprocess
import sys
from types import SimpleNamespace

import psutil
import pytest
from structlog.testing import capture_logs

from ostraka import supervisor as supervisor_module
from ostraka.generation import Generation
from ostraka.restarts import CRASH_LIMIT_AT_START, RestartPolicy
from ostraka.serve_config import StopConfig
from ostraka.supervisor import STARTING_POLL_S, Supervisor
from tests.clocks import FakeClock
from tests.waiting import wait_until

GRACE_S = 25.0
NOT_READY_S = 5.0


class FakeChild:
    """Its process is what the test says: `die(code)`, or to ignore SIGTERM."""

    def __init__(self, name, world):
        self.name = name
        self.world = world
        self.policy = RestartPolicy(lambda: 1.0)
        self.process = None
        self.code = None
        self.restart_at = None
        self.is_given_up = False
        self.starts = []
        self.fails_to_start = 0
        self.dies_at_start = False
        self.obeys = True

    @property
    def is_running(self):
        return self.process is not None

    def start(self):
        self.starts.append(self.world.clock.now)
        self.restart_at = None
        if self.fails_to_start:
            self.fails_to_start -= 1
            raise BlockingIOError(11, "Resource temporarily unavailable")
        self.process = SimpleNamespace(pid=0, wait=lambda: self.world.journal.append(f"{self.name} reaped"))
        self.code = 1 if self.dies_at_start else None

    def die(self, code=-9):
        self.code = code

    def reap(self):
        if self.process is None or self.code is None:
            return None
        code, self.process, self.code = self.code, None, None
        return code

    def schedule_restart(self, *, has_been_ready):
        delay_s = self.policy.next_delay_s(self.world.clock.now - self.starts[-1], has_been_ready=has_been_ready)
        self.is_given_up = delay_s is None
        self.restart_at = None if delay_s is None else self.world.clock.now + delay_s

    def send(self, number):
        if self.process:
            self.world.journal.append(f"{self.name} {number.name}")
            if self.obeys and number == signal.SIGTERM:
                self.die(0)


class World:
    """`steps` are what happens while the supervisor waits: one a wait. After the last, SIGTERM, unless there was one. `ready` is what the
    gateway's readiness page says, None where it does not answer; by default, all workers that run."""

    def __init__(self, monkeypatch, workers=2, gateways=1, *, announces=False):
        self.clock = FakeClock().install(monkeypatch, supervisor_module)
        self.journal = []
        self.waits = []
        self.gateways = [FakeChild(f"gateway{n or ''}", self) for n in range(gateways)]
        self.gateway = self.gateways[0]
        self.workers = [FakeChild(f"w{n}", self) for n in range(workers)]
        self.ready = lambda: sum(worker.is_running for worker in self.workers)
        world = self

        class Probed(Supervisor):
            def _count_ready(self):
                return world.ready()

        self.is_shut = False
        self.listener = SimpleNamespace(getsockname=lambda: ("127.0.0.1", 1), shutdown=self.shut)
        self.not_ready = []

        class Announced(Generation):
            def announce(self):
                world.not_ready.append(world.clock.now)

        times = StopConfig(GRACE_S, NOT_READY_S if announces else 0.0)
        self.supervisor = Probed(Announced(1, self.gateways, self.workers), self.listener, times)

    def shut(self, _):
        self.is_shut = True

    def wait(self, timeout_s, others):
        assert others == []  # none of these children is forked
        self.waits.append(timeout_s)
        assert len(self.waits) < 500, "it spins"
        step = self.steps.pop(0) if self.steps else None if self.is_told else signal.SIGTERM
        found = step() if callable(step) else step
        self.is_told = self.is_told or found in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
        if found is None:
            self.clock.advance(timeout_s)
        return found

    def run(self, *steps):
        self.is_told = False
        self.steps = list(steps)
        with capture_logs() as events:
            code = self.supervisor.run(self)
        self.events = [event["event"] for event in events]
        return code


def quiet():
    """A wait in which nothing happens."""


@pytest.fixture
def world(monkeypatch):
    return World(monkeypatch)


def kill(child, code=-9):
    def step():
        child.die(code)
        return signal.SIGCHLD

    return step


def test_it_starts_all_and_listens_once_all_are_ready(world):
    counts = [None, 0, 0, 1, 2]
    world.ready = lambda: counts.pop(0)
    assert world.run(*[quiet] * 5) == 0
    assert world.events[:4] == ["workers_loading", "workers_loading", "workers_ready", "listening"]
    assert [len(child.starts) for child in (world.gateway, *world.workers)] == [1, 1, 1]


def test_drain_is_the_gateway_first_and_then_the_workers(world):
    assert world.run(quiet) == 0
    assert world.journal == ["gateway SIGTERM", "w0 SIGTERM", "w1 SIGTERM"]
    assert world.events[-1] == "stopped"


@pytest.fixture
def pair(monkeypatch):
    return World(monkeypatch, gateways=2)


def test_workers_serve_until_the_last_gateway_is_gone(pair):
    """Nobody is connected to any more, but what was accepted is answered."""
    pair.gateways[1].obeys = False
    seen = []

    def look():
        seen.append((list(pair.journal), pair.is_shut))

    def end():
        look()
        return kill(pair.gateways[1], 0)()

    assert pair.run(look, signal.SIGTERM, quiet, end) == 0
    assert seen == [([], False), (["gateway SIGTERM", "gateway1 SIGTERM"], True)]
    assert pair.journal == ["gateway SIGTERM", "gateway1 SIGTERM", "w0 SIGTERM", "w1 SIGTERM"]


def test_a_gateway_that_dies_or_drains_is_replaced_and_its_sibling_is_left_alone(pair):
    assert pair.run(quiet, kill(pair.gateways[1]), quiet, kill(pair.gateways[1], 0), *[quiet] * 3) == 0
    assert [len(gateway.starts) for gateway in pair.gateways] == [1, 3]
    assert pair.journal[:2] == ["gateway SIGTERM", "gateway1 SIGTERM"]


def test_one_gateway_given_up_leaves_the_others(pair):
    pair.gateways[1].dies_at_start = True
    counts = iter([0] * 4 + [2] * 50)
    pair.ready = lambda: next(counts)
    assert pair.run(*[quiet] * 10) == 0
    assert pair.gateways[1].is_given_up
    assert "listening" in pair.events


def test_no_gateway_that_can_be_kept_up_ends_it_all(pair):
    for gateway in pair.gateways:
        gateway.dies_at_start = True
    pair.ready = lambda: None
    assert pair.run(*[quiet] * 20) == 1
    assert "cannot_keep_up" in pair.events


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_each_stop_signal_drains(world, number):
    assert world.run(quiet, number) == 0
    assert world.journal[0] == "gateway SIGTERM"


def test_workers_serve_until_the_gateway_is_gone(world):
    world.gateway.obeys = False
    finish = kill(world.gateway, 0)
    assert world.run(quiet, signal.SIGTERM, quiet, quiet, finish) == 0
    assert world.journal == ["gateway SIGTERM", "w0 SIGTERM", "w1 SIGTERM"]


@pytest.mark.parametrize("who", ["gateway", "w0"])
def test_what_dies_is_started_again_after_a_moment(world, who):
    child = {"gateway": world.gateway, "w0": world.workers[0]}[who]
    assert world.run(quiet, kill(child), quiet, quiet) == 0
    assert len(child.starts) == 2
    assert child.starts[1] - child.starts[0] >= 0.1
    assert [len(c.starts) for c in (world.gateway, *world.workers) if c is not child] == [1, 1]


def test_a_first_death_is_made_good_at_once(world):
    world.run(quiet, kill(world.workers[0]), quiet)
    assert world.workers[0].starts == [1000.0, 1000.0 + STARTING_POLL_S]


def test_a_death_is_seen_at_once_and_the_restart_is_not_overslept(world):
    world.workers[0].policy.quick_deaths = 1
    world.run(quiet, kill(world.workers[0]), quiet)
    assert world.waits[2] == pytest.approx(0.1)


def test_a_child_that_dies_at_start_ends_it_all(world):
    world.workers[0].dies_at_start = True
    for worker in world.workers[1:]:
        worker.dies_at_start = True
    world.ready = lambda: 0
    assert world.run(*[quiet] * 20) == 1
    assert "cannot_keep_up" in world.events
    assert len(world.workers[0].starts) == CRASH_LIMIT_AT_START
    assert world.journal == ["gateway SIGTERM"]


def test_a_gateway_that_dies_at_start_ends_it_all(world):
    world.gateway.dies_at_start = True
    world.ready = lambda: None
    assert world.run(*[quiet] * 20) == 1
    assert world.journal == ["w0 SIGTERM", "w1 SIGTERM"]


def test_one_worker_given_up_leaves_a_smaller_cluster_that_listens(world):
    """The other is ready long before: that no number changes any more must not keep it from serving."""
    world.workers[1].dies_at_start = True
    world.ready = lambda: 1
    assert world.run(*[quiet] * 20) == 0
    assert len(world.workers[1].starts) == CRASH_LIMIT_AT_START
    assert "listening" in world.events


def test_a_process_that_cannot_be_started_is_tried_again(world):
    world.workers[0].fails_to_start = 1
    assert world.run(*[quiet] * 5) == 0
    assert len(world.workers[0].starts) == 2
    assert "listening" in world.events


def test_a_worker_that_dies_in_a_drain_is_replaced_while_the_gateway_waits_for_its_answers(world):
    world.gateway.obeys = False
    finish = kill(world.gateway, 0)
    assert world.run(quiet, signal.SIGTERM, kill(world.workers[0]), quiet, quiet, finish) == 0
    assert len(world.workers[0].starts) == 2
    assert world.journal == ["gateway SIGTERM", "w0 SIGTERM", "w1 SIGTERM"]


def test_a_restart_that_was_due_when_the_drain_began_is_made_and_does_not_spin(world):
    """The workers need the cores for what they still answer."""
    world.gateway.obeys = False
    finish = kill(world.gateway, 0)
    world.workers[0].policy.quick_deaths = 1
    assert world.run(quiet, kill(world.workers[0]), signal.SIGTERM, quiet, quiet, quiet, finish) == 0
    assert len(world.workers[0].starts) == 2
    assert world.waits[4:6] == [1.0] * 2


def test_nobody_is_replaced_once_the_gateway_is_gone(world):
    world.workers[1].obeys = False
    finish = kill(world.workers[1], 0)
    assert world.run(quiet, signal.SIGTERM, quiet, quiet, finish) == 0
    assert [len(child.starts) for child in (world.gateway, *world.workers)] == [1, 1, 1]


def test_a_worker_still_to_be_replaced_is_not_once_the_gateway_is_gone(world):
    world.gateway.obeys = False

    def both():
        world.workers[0].die()
        world.gateway.die(0)
        return signal.SIGCHLD

    assert world.run(quiet, signal.SIGTERM, both, quiet, quiet) == 0
    assert len(world.workers[0].starts) == 1


def test_a_second_signal_replaces_nobody(world):
    world.workers[0].policy.quick_deaths = 1
    world.gateway.obeys = False
    assert world.run(quiet, signal.SIGTERM, quiet, kill(world.workers[0]), signal.SIGTERM) == 1
    assert len(world.workers[0].starts) == 1


def test_a_drain_while_the_gateway_is_down_goes_on_to_the_workers(world):
    world.gateway.policy.quick_deaths = 1
    assert world.run(quiet, kill(world.gateway), signal.SIGTERM) == 0
    assert world.journal == ["w0 SIGTERM", "w1 SIGTERM"]


@pytest.fixture
def zygote(world, monkeypatch):
    """No orphans are looked for: this process has children of other tests."""
    monkeypatch.setattr(supervisor_module, "reap_strays", lambda _: None)
    found = FakeChild("zygote 0", world)
    world.supervisor._first.zygotes.append(found)
    return found


def test_a_zygote_is_started_before_the_workers_and_leaves_with_them(world, zygote):
    assert world.run(quiet) == 0
    assert [child.name for child in world.supervisor._children()] == ["gateway", "zygote 0", "w0", "w1"]
    assert world.journal == ["gateway SIGTERM", "zygote 0 SIGTERM", "w0 SIGTERM", "w1 SIGTERM"]


def test_a_zygote_that_dies_is_replaced_and_costs_no_worker(world, zygote):
    assert world.run(quiet, kill(zygote), quiet) == 0
    assert [len(child.starts) for child in world.supervisor._children()] == [1, 2, 1, 1]


def test_a_zygote_that_cannot_be_kept_up_is_done_without(world, zygote):
    zygote.dies_at_start = True
    world.ready = lambda: 2 if zygote.is_given_up else 1
    assert world.run(*[quiet] * 20) == 0
    assert len(zygote.starts) == CRASH_LIMIT_AT_START
    assert "listening" in world.events


def test_a_second_signal_kills(world):
    world.gateway.obeys = False
    assert world.run(quiet, signal.SIGINT, quiet, signal.SIGINT) == 1
    assert [line for line in world.journal if "KILL" in line] == ["gateway SIGKILL", "w0 SIGKILL", "w1 SIGKILL"]
    assert [line for line in world.journal if "reaped" in line] == ["gateway reaped", "w0 reaped", "w1 reaped"]


def test_a_signal_that_comes_twice_at_once_is_one(world):
    """A supervisor's own may signal a group, and then its leader."""
    world.gateway.obeys = False
    finish = kill(world.gateway, 0)
    assert world.run(quiet, signal.SIGTERM, signal.SIGTERM, signal.SIGINT, quiet, finish) == 0
    assert world.journal == ["gateway SIGTERM", "w0 SIGTERM", "w1 SIGTERM"]


@pytest.fixture
def announcing(monkeypatch):
    return World(monkeypatch, announces=True)


def test_sigterm_is_announced_before_the_door_is_shut(announcing):
    told_at, seen = [], []

    def tell():
        told_at.append(announcing.clock.now)
        return signal.SIGTERM

    def look():
        seen.append((list(announcing.journal), announcing.is_shut))

    assert announcing.run(quiet, tell, *[look] * 6) == 0
    assert announcing.not_ready == told_at
    assert seen[:5] == [([], False)] * 5
    assert seen[5] == (["gateway SIGTERM"], True)
    assert [event for event in announcing.events if event in ("not_ready", "stopping")] == ["not_ready", "stopping"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGHUP])
def test_in_a_terminal_nobody_waits_for_a_load_balancer(announcing, number):
    assert announcing.run(quiet, number) == 0
    assert (announcing.not_ready, announcing.journal[0]) == ([], "gateway SIGTERM")


def test_who_is_not_ready_yet_has_nothing_to_announce(announcing):
    announcing.ready = lambda: None
    assert announcing.run(signal.SIGTERM) == 0
    assert announcing.not_ready == []


def test_what_dies_meanwhile_is_replaced_and_told(announcing):
    steps = [quiet, signal.SIGTERM, kill(announcing.gateway), quiet, kill(announcing.workers[0]), *[quiet] * 6]
    assert announcing.run(*steps) == 0
    assert [len(child.starts) for child in (announcing.gateway, *announcing.workers)] == [2, 2, 1]
    assert announcing.not_ready[1] == announcing.gateway.starts[1]


def test_a_later_signal_ends_the_announcement_and_all_else(announcing):
    assert announcing.run(quiet, signal.SIGTERM, signal.SIGTERM, quiet, signal.SIGTERM) == 1
    assert announcing.events[-2:] == ["stopping_now", "stopped"]
    assert "gateway SIGKILL" in announcing.journal


def test_the_grace_period_ends(world):
    world.workers[1].obeys = False
    begun = world.clock.now
    assert world.run(quiet, signal.SIGTERM, *[quiet] * 40) == 1
    assert "grace_period_over" in world.events
    assert world.journal[-2:] == ["w1 SIGKILL", "w1 reaped"]
    assert GRACE_S <= world.clock.now - begun <= GRACE_S + 2


def test_a_signal_while_starting_drains(world):
    world.ready = lambda: None
    assert world.run(signal.SIGTERM) == 0
    assert world.journal == ["gateway SIGTERM", "w0 SIGTERM", "w1 SIGTERM"]


def test_a_gateway_that_had_not_begun_to_serve_left_nothing_unanswered(world):
    """It has no handler yet: the signal itself ends it."""
    world.ready = lambda: None
    world.gateway.obeys = False
    assert world.run(signal.SIGTERM, kill(world.gateway, -signal.SIGTERM)) == 0


def test_a_fault_of_its_own_leaves_no_child(world):
    def fault():
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        world.run(quiet, fault)
    assert [line for line in world.journal if "reaped" in line] == ["gateway reaped", "w0 reaped", "w1 reaped"]


def test_it_looks_more_often_while_starting(world):
    world.ready = lambda: 0
    world.run(quiet, quiet)
    assert world.waits[:2] == [STARTING_POLL_S] * 2


# Real processes. Each writes what it lives through to a journal, one line an event.

CHILD = """
import os, signal, socket, sys
name, incarnation, folder = sys.argv[1:]
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
if name == "gateway":
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(folder + "/figures.sock")
    listener.listen()
    listener.settimeout(0.005)
    while signal.SIGTERM not in signal.sigpending():
        try:
            asking, _ = listener.accept()
        except TimeoutError:
            continue
        asking.sendall(b'{"ready_workers": %d}' % (0 if has("nobody_ready") else 2))
        asking.close()
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
from ostraka.generation import Generation
from ostraka.restarts import RestartPolicy
from ostraka.serve_config import StopConfig
from ostraka.signals import taken_signals
from ostraka.supervisor import Supervisor
folder, child = Path(sys.argv[1]), sys.argv[2]
stopping.SECOND_SIGNAL_S = 0.0
listener = socket.create_server(("127.0.0.1", 0))
def make(name):
    return Child(
        name,
        lambda incarnation: ["-S", "-c", child, name, str(incarnation), str(folder)],
        RestartPolicy(lambda: 0.0),
    )
first = Generation(1, [make("gateway")], [make("w0"), make("w1")], figures_at=[f"{folder}/figures.sock"])
supervisor = Supervisor(first, listener, StopConfig(20.0, 0.0))
with taken_signals() as signals:
    sys.exit(supervisor.run(signals))
"""


def is_dead(process):
    """Also one that nobody has waited for yet."""
    try:
        return process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


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


ORPHAN = """
import os, sys
from ostraka.children import Child
from ostraka.generation import Generation
from ostraka.restarts import RestartPolicy
script = (
    "import os, sys, json, signal\\n"
    "print(json.dumps({'pid': os.getpid(), 'group': os.getpgid(0), 'blocked': len(signal.pthread_sigmask(0, [])),"
    " 'ignores_hangup': signal.getsignal(signal.SIGHUP) == signal.SIG_IGN,"
    " 'stdin': sys.stdin.read(), 'threads': os.environ['OMP_NUM_THREADS'],"
    " 'telemetry': os.environ['ORT_DISABLE_TELEMETRY']}), flush=True)\\n"
    "signal.pause()"
)
import signal
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM, signal.SIGCHLD])
signal.signal(signal.SIGHUP, signal.SIG_IGN)
child = Child("c", lambda incarnation: ["-c", script], RestartPolicy(lambda: 0.0))
child.start()
signal.pause()
"""


def test_a_child_dies_with_its_parent_and_begins_clean():
    """Killed with -9, a parent can tell nobody: the kernel has to."""
    with subprocess.Popen([sys.executable, "-c", ORPHAN], stdout=subprocess.PIPE) as parent:
        try:
            said = json.loads(parent.stdout.readline())
            child = psutil.Process(said["pid"])
            assert child.ppid() == parent.pid
        finally:
            parent.kill()
    wait_until(lambda: is_dead(child))
    clean = {"group": child.pid, "blocked": 0, "ignores_hangup": False, "stdin": "", "threads": "1", "telemetry": "1"}
    assert said == {"pid": child.pid, **clean}


UNSAFE = """
from ostraka import children
from ostraka.restarts import RestartPolicy
from ostraka_shared import process_control
class Refusing:
    def prctl(self, *_):
        return -1
process_control._libc = Refusing()
child = children.Child("c", lambda incarnation: ["-c", "print('it runs')"], RestartPolicy(lambda: 0.0))
child.start()
print(child.process.wait(20))
"""


def test_a_child_that_might_outlive_us_is_not_started():
    done = subprocess.run([sys.executable, "-c", UNSAFE], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "1\n"
    assert "PR_SET_PDEATHSIG" in done.stderr
