"""A worker's service before a gateway that says what a test has it say, with an engine whose tokens take time."""

from collections import deque
from dataclasses import dataclass, field

import numpy as np

from ostraka_shared.messages import Beat, Bye, Drain, Failed, Hello, Ready, Refused, Result, Work
from ostraka_worker import hearing, service
from ostraka_worker.fake_engine import FakeEngine
from ostraka_worker.service import Service
from ostraka_worker.snapshots import Snapshots
from tests.clocks import FakeClock

HELLO = Hello("cluster", "w0", 3, "print", "host", 123, (0,))
FAIL = 900
NAN = 901
BUDGET = 16
UNKNOWN = Refused("unknown_worker", "say HELLO first")


def work(name, *lengths, prefix=0, attempt=1, deadline_ms=60_000, token=1):
    suffixes = tuple(np.full(length, token, "<u4").tobytes() for length in lengths)
    return Work(name, attempt, deadline_ms, np.full(prefix, 7, "<u4").tobytes(), suffixes)


@dataclass
class FakeLink:
    """Each `receive` takes the next step of `script`: messages, or a function that gives them. After the last step, and
    once the worker has nothing to do, the gateway says DRAIN. `waits` are the timeouts asked for; one that finds nothing lets its time pass."""

    clock: FakeClock
    script: deque = field(default_factory=deque)
    sent: list = field(default_factory=list)
    sent_at: list = field(default_factory=list)
    waits: list = field(default_factory=list)
    dropped_frames: int = 0
    is_cut: bool = False

    def __len__(self):
        return 1

    def send(self, gateway, message):
        assert gateway == 0
        self.sent.append(message)
        self.sent_at.append(self.clock.now)
        return True

    def receive(self, timeout_s):
        self.waits.append(timeout_s)
        if not self.script and not timeout_s:
            return []
        step = self.script.popleft() if self.script else [Drain()]
        messages = step() if callable(step) else step
        if not messages:
            self.clock.advance(timeout_s)
        return [(0, message) for message in messages]

    def cut(self):
        was_cut, self.is_cut = self.is_cut, False
        return [0] if was_cut else []

    @property
    def said(self):
        """All but beats: those follow the clock."""
        return [message for message in self.sent if not isinstance(message, Beat)]


class TimedEngine(FakeEngine):
    """A token takes a millisecond."""

    def __init__(self, clock):
        super().__init__({"fail_on_token": FAIL, "nan_on_token": NAN})
        self.clock = clock
        self.calls = []

    def run(self, prompts):
        self.calls.append([len(each.tokens) for each in prompts])
        self.clock.advance(sum(self.calls[-1]) / 1000)
        return super().run(prompts)


class World:
    def __init__(self, clock):
        self.clock = clock
        self.link = FakeLink(clock)
        self.engine = TimedEngine(clock)
        self.service = Service(
            self.link, HELLO, batch_tokens=BUDGET, credit_tokens=2 * BUDGET, snapshots=Snapshots(4, 1000)
        )

    def run(self, *script):
        """The service's whole life; the steps are what `receive` finds."""
        self.link.script.extend(script)
        self.service.load(lambda: self.engine)
        self.service.run()
        return self.link.said

    def after(self, seconds, *messages):
        """A step: `messages` come after so long."""

        def arrive():
            self.clock.advance(seconds)
            return list(messages)

        return arrive


def make_world(monkeypatch):
    return World(FakeClock().install(monkeypatch, service).install(monkeypatch, hearing))


def results(said):
    return [message for message in said if isinstance(message, Result)]


def failures(said):
    return [(message.request_id, message.code) for message in said if isinstance(message, Failed)]


READY = Ready("fake 1", 2 * BUDGET, 0.0)  # these tests do not warm it up
END = [Drain(), Bye("drained")]
