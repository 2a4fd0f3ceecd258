"""A supervisor whose children are only said to be there, and what happens while it waits."""

import signal
from types import SimpleNamespace

from structlog.testing import capture_logs

from ostraka import startup as startup_module
from ostraka import supervisor as supervisor_module
from ostraka.generation import Generation
from ostraka.recycling import Recycling
from ostraka.restarts import RestartPolicy
from ostraka.rolling import Rolling
from ostraka.serve_config import StopConfig
from ostraka.succession import Succession
from ostraka.supervisor import Supervisor
from tests.clocks import FakeClock

GRACE_S = 25.0
NOT_READY_S = 5.0


class FakeDesk:
    """`wishes` are taken from the last; what is said to whoever asked is in `said`."""

    def __init__(self, *wishes):
        self.wishes, self.said, self.has_visitor, self.sockets = list(wishes), [], bool(wishes), []

    def take(self):
        return self.wishes.pop() if self.wishes else None

    def say(self, message):
        self.said.append(message)

    def refuse(self, reason):
        self.say({"refused": reason})
        self.close_visit()

    def close_visit(self):
        self.has_visitor = False


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
        self.stopped_s = None  # of a zygote

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

    def look(self, _now):
        """As a zygote that nobody has stopped."""

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
            if number == signal.SIGKILL:
                self.die(-number)
            elif self.obeys and number == signal.SIGTERM:
                self.die(0)


class World:
    """`steps` are what happens while the supervisor waits: one a wait. After the last, SIGTERM, unless there was one.
    `ready` is what the gateways say of their workers, None where they do not answer; by default, all that run."""

    def __init__(self, monkeypatch, workers=2, gateways=1, *, announces=False):
        self.clock = FakeClock().install(monkeypatch, supervisor_module)
        monkeypatch.setattr(supervisor_module, "SERVING_POLL_S", 1.0)  # a step of these tests is a second
        monkeypatch.setattr(startup_module, "_count_ready", lambda _: self.ready())
        self.journal = []
        self.waits = []
        self.gateways = [FakeChild(f"gateway{n or ''}", self) for n in range(gateways)]
        self.gateway = self.gateways[0]
        self.workers = [FakeChild(f"w{n}", self) for n in range(workers)]
        self.ready = lambda: sum(worker.is_running for worker in self.workers)
        world = self
        self.is_shut = False
        self.listener = SimpleNamespace(
            getsockname=lambda: ("127.0.0.1", 1), getsockopt=lambda *_: b"", shutdown=self.shut
        )
        self.not_ready = []

        class Announced(Generation):
            def announce(self):
                world.not_ready.append(world.clock.now)

        times = StopConfig(GRACE_S, NOT_READY_S if announces else 0.0)
        self.succession = Succession(Announced(1, self.gateways, self.workers))
        ground = SimpleNamespace(turn=lambda _: None, hold_back=lambda *_: None, close=lambda: None)
        rolling = Rolling(FakeDesk(), self.succession, None, GRACE_S)
        self.supervisor = Supervisor(self.succession, rolling, self.listener, times, Recycling(0), ground)

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


def kill(child, code=-9):
    def step():
        child.die(code)
        return signal.SIGCHLD

    return step
