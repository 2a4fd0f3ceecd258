"""A rollout carried out with children that are only said to be there: whom it sends away, and how long it waits."""

import signal
from pathlib import Path

import pytest

from ostraka import rolling as rolling_module
from ostraka.children import Child
from ostraka.front_desk import BUSY
from ostraka.generation import Generation
from ostraka.restarts import RestartPolicy
from ostraka.rolling import ABORT_GRACE_S, Rolling
from ostraka.succession import Succession
from ostraka_shared.model_folder import open_folder
from tests.fake_model import make_fake_model
from tests.unit.deploy.supervised import FakeDesk

GRACE_S = 25.0
BEFORE_S = 0.1


class FakeChild(Child):
    """Runs until it is killed, whatever it is told before."""

    def __init__(self, name: str) -> None:
        super().__init__(name, lambda _: [], RestartPolicy(lambda: 0.5))
        self.told: list[signal.Signals] = []

    def start(self) -> None:
        self.process = self  # type: ignore[assignment]

    def send(self, number: signal.Signals) -> None:
        if self.process:
            self.told.append(number)
        if number is signal.SIGKILL:
            self.process = None


class World:
    def __init__(self, monkeypatch, model: Path):
        self.now = 0.0
        monkeypatch.setattr(rolling_module.time, "monotonic", lambda: self.now)
        self.old, self.new = (
            Generation(number, [FakeChild("gateway")], [FakeChild("w0")], model=open_folder(model)) for number in (1, 2)
        )
        for child in self.old.children:
            child.start()
        self.old.is_serving = True
        self.desk = FakeDesk({"model": None, "plan": {"requests": 0, "shift_s": 0.0}})
        self.succession = Succession(self.old)
        self.rolling = Rolling(self.desk, self.succession, lambda *_: self.new, GRACE_S)

    def until(self, phase: str) -> None:
        while not self.desk.said or self.desk.said[-1].get("phase") != phase:
            self.turn()

    def turn(self, after_s: float = 0.0) -> None:
        self.now += after_s
        self.rolling.turn(may_begin=True)

    def told(self, generation: Generation) -> list[list[signal.Signals]]:
        return [child.told for child in generation.children]


@pytest.fixture
def world(monkeypatch, tmp_path):
    return World(monkeypatch, make_fake_model(tmp_path / "model").path)


@pytest.mark.parametrize(("phase", "grace_s"), [("shifting", ABORT_GRACE_S), ("switching", GRACE_S)])
def test_a_generation_that_may_have_clients_has_time_to_answer_them(world, phase, grace_s):
    world.until(phase)
    assert world.rolling.exited(world.new.workers[0], "SIGSEGV")
    world.turn(grace_s - BEFORE_S)
    assert world.told(world.new) == [[signal.SIGTERM], []]
    world.turn(BEFORE_S)
    assert world.told(world.new) == [[signal.SIGTERM, signal.SIGKILL], [signal.SIGKILL]]
    assert world.desk.said[-1]["phase"] == "aborted"
    assert world.told(world.old) == [[], []]
    assert world.succession.serving is world.old


def test_who_comes_when_the_first_to_ask_has_left_is_refused_and_told_of_no_success(world):
    world.until("draining")
    world.desk.wishes.append({"model": None, "plan": {}})
    world.turn()
    assert world.desk.said[-1] == {"refused": BUSY}
    assert not world.desk.has_visitor
    world.turn(GRACE_S)
    assert world.desk.said[-1]["phase"] == "done"


def test_the_old_one_leaves_when_the_new_one_accepts_and_not_before(world):
    world.until("switching")
    assert world.told(world.old) == [[], []]
    world.until("draining")
    assert world.succession.serving is world.new
    assert world.told(world.old) == [[signal.SIGTERM], []]
    world.turn(GRACE_S)
    assert world.desk.said[-1]["phase"] == "done"
    assert world.told(world.new) == [[], []]
