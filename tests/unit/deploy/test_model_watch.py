"""Who cannot load the model's files, since they are others than at the start, waits until they change, and it is said."""

import pytest
from structlog.testing import capture_logs

from ostraka import children, model_watch
from ostraka.children import Child
from ostraka.forking import Zygote
from ostraka.generation import Generation
from ostraka.model_watch import CANNOT_COME_BACK, MODEL_FILES_CHANGED, RETRY_S, ModelWatch
from ostraka.restarts import RestartPolicy
from tests.clocks import FakeClock
from tests.fake_model import make_fake_model


class World:
    def __init__(self, folder, monkeypatch):
        self.clock = FakeClock()
        self.clock.install(monkeypatch, model_watch)
        self.clock.install(monkeypatch, children)
        self.folder = make_fake_model(folder / "model")
        self.zygote, self.doors = (Zygote(name, lambda _: [], RestartPolicy(lambda: 1.0)) for name in ("zygote 0", "g"))
        self.worker = Child("w0", lambda _: [], RestartPolicy(lambda: 1.0), fork_from=self.zygote.fork)
        generation = Generation(1, [], [self.worker], zygotes=[self.doors, self.zygote])
        self.watch = ModelWatch(generation, self.folder)
        self.events = []

    def end(self, child, code="1"):
        """How long it is to wait."""
        child.process = None
        child.started = self.clock.now
        child.schedule_restart(has_been_ready=True)
        with capture_logs() as events:
            self.watch.hold_back(child, code)
        self.events += [event["event"] for event in events]
        return child.restart_at - self.clock.now

    def run(self, child):
        child.process, child.restart_at, child.started = object(), None, self.clock.now

    def lose(self):
        self.folder.tokenizer.rename(self.folder.tokenizer.with_name("away"))

    def put_back(self):
        self.folder.tokenizer.with_name("away").rename(self.folder.tokenizer)


@pytest.fixture
def world(tmp_path, monkeypatch):
    return World(tmp_path, monkeypatch)


def test_who_cannot_load_is_held_back_and_started_when_the_files_are_back(world):
    world.lose()
    assert [world.end(child) for child in (world.zygote, world.worker, world.worker)] == [RETRY_S] * 3
    assert world.events == ["cannot_come_back"] * 2, "once each"
    assert world.watch.look() == (MODEL_FILES_CHANGED, CANNOT_COME_BACK)
    world.put_back()
    assert world.watch.look() == (CANNOT_COME_BACK,)
    assert [child.restart_at for child in (world.zygote, world.worker)] == [world.clock.now] * 2
    world.run(world.zygote)
    world.run(world.worker)
    assert world.watch.look() == ()


def test_other_files_may_be_the_same_model_so_they_are_tried(world):
    world.lose()
    world.end(world.worker)
    world.watch.look()
    world.folder.tokenizer.write_bytes(b"copied")
    assert world.watch.look() == (MODEL_FILES_CHANGED, CANNOT_COME_BACK)
    assert world.worker.restart_at == world.clock.now
    world.run(world.worker)
    assert world.watch.look() == (MODEL_FILES_CHANGED, CANNOT_COME_BACK), "whether it can load is to be seen"
    world.clock.advance(RETRY_S + 1)
    assert world.watch.look() == (MODEL_FILES_CHANGED,)


def test_who_was_killed_or_loads_something_else_or_fails_though_the_files_are_whole_is_not_held_back(world):
    assert world.end(world.worker) < RETRY_S
    world.lose()
    assert world.end(world.worker, "SIGKILL") < RETRY_S
    assert world.end(world.doors) < RETRY_S
    assert (world.events, world.watch.look()) == ([], (MODEL_FILES_CHANGED,))
