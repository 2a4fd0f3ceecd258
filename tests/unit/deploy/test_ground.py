"""What is lost under a running server is said, made good where it can be, and said again until it is."""

import os
import shutil
from types import SimpleNamespace

import pytest
from structlog.testing import capture_logs

from ostraka.front_desk import FrontDesk
from ostraka.gateway_child import GatewayChild
from ostraka.generation import Generation
from ostraka.ground import LOOK_S, RUN_DIR_LOST, Ground, lock_folder
from ostraka.model_watch import MODEL_FILES_CHANGED
from ostraka.restarts import RestartPolicy
from ostraka.succession import Succession
from ostraka_gateway.orders import Degraded, Rebind
from ostraka_shared.addresses import FRONT_FOLDER, METRICS_FOLDER, count_paths
from ostraka_shared.errors import ConfigError
from ostraka_shared.front_files import NAMES, read_front, write_front
from tests.fake_model import make_fake_model


class Gateway(GatewayChild):
    """Its sockets are files; it makes them anew when it is told to, unless it is `deaf`."""

    def __init__(self, sockets):
        super().__init__("gateway", lambda _: [], RestartPolicy(lambda: 0.5))
        self.sockets, self.orders, self.is_deaf = sockets, [], False
        self.process = self.control = SimpleNamespace()
        self.has_reported = True
        self.bind()

    def bind(self):
        for path in self.sockets:
            path.touch()

    def order(self, order):
        self.orders.append(order)
        if isinstance(order, Rebind) and not self.is_deaf:
            self.bind()
        return True

    @property
    def degraded(self):
        return [tuple(order.reasons) for order in self.orders if isinstance(order, Degraded)][-1:]


class World:
    def __init__(self, folder):
        self.run_dir = folder / "run"
        self.run_dir.mkdir(mode=0o700)
        self.model = make_fake_model(folder / "model")
        sockets = [self.run_dir / "workers.sock", self.run_dir / "figures.sock"]
        self.gateway = Gateway(sockets)
        generation = Generation(1, [self.gateway], [], model=self.model, front=read_front(self.model))
        write_front(generation.front, self.run_dir / FRONT_FOLDER)
        (self.run_dir / METRICS_FOLDER).mkdir()
        self.generation = generation
        generation.workers_at, generation.figures_at = [str(sockets[0])], [str(sockets[1])]
        self.desk = FrontDesk(self.run_dir)
        self.ground = Ground(self.run_dir, self.desk, Succession(generation))
        self.now = 0.0
        self.look()

    def look(self):
        self.now += LOOK_S
        with capture_logs() as events:
            self.ground.turn(self.now)
        return [event["event"] for event in events]


@pytest.fixture
def world(tmp_path):
    found = World(tmp_path)
    with found.desk:
        locked = lock_folder(found.run_dir)  # as `ostraka serve` has it
        yield found
        os.close(locked)
    found.ground.close()


def test_where_nothing_is_lost_nothing_is_said(world):
    assert world.look() == []
    assert world.gateway.orders == []


def test_a_deleted_run_directory_is_made_again_for_its_owner_alone_and_all_bind_in_it(world):
    shutil.rmtree(world.run_dir)
    assert world.look() == [RUN_DIR_LOST]
    assert world.gateway.degraded == [(RUN_DIR_LOST,)]
    assert {path.name for path in world.run_dir.iterdir()} == {
        "control.sock",
        "workers.sock",
        "figures.sock",
        "metrics",
        "model",
    }
    assert world.run_dir.stat().st_mode & 0o777 == 0o700
    with pytest.raises(ConfigError, match="in use by another server"):
        lock_folder(world.run_dir)
    assert world.look() == ["run_dir_restored"]
    assert world.gateway.degraded == [()]
    assert world.look() == []


def test_it_says_once_what_stands_in_its_way_and_tries_on(world):
    shutil.rmtree(world.run_dir)
    world.run_dir.touch()
    assert world.look() == [RUN_DIR_LOST, "run_dir_not_restored"]
    assert world.look() == []
    world.run_dir.unlink()
    assert world.look() == []
    assert world.look() == ["run_dir_restored"]
    shutil.rmtree(world.run_dir)
    world.run_dir.touch()
    assert world.look() == [RUN_DIR_LOST, "run_dir_not_restored"], "it is another loss"
    world.run_dir.unlink()


def test_a_folder_that_others_could_reach_is_not_bound_in(world):
    shutil.rmtree(world.run_dir)
    world.run_dir.mkdir(mode=0o755)
    world.run_dir.chmod(0o750)
    assert "run_dir_not_restored" in world.look()
    assert not any(isinstance(order, Rebind) for order in world.gateway.orders)


def test_one_socket_that_is_gone_is_bound_again_and_one_that_is_leaving_or_starting_has_none(world):
    (world.run_dir / "workers.sock").unlink()
    world.gateway.has_reported = False
    assert world.look() == []
    world.gateway.has_reported = True
    assert world.look() == [RUN_DIR_LOST]
    assert world.look() == ["run_dir_restored"]


@pytest.mark.parametrize("name", NAMES)
def test_what_a_gateway_would_read_of_the_model_at_its_start_is_put_back(world, name):
    """Programs that tidy up delete old files and leave sockets."""
    file = world.run_dir / FRONT_FOLDER / name
    content = file.read_bytes()
    file.unlink()
    assert world.look() == [RUN_DIR_LOST]
    assert file.read_bytes() == content
    assert world.look() == ["run_dir_restored"]


@pytest.mark.parametrize("how", ["written", "replaced", "gone"])
def test_a_model_whose_files_changed_is_said_once_in_the_log_and_for_good_by_the_gateways(world, how):
    tokenizer = world.model.tokenizer
    content = tokenizer.read_bytes()
    if how == "gone":
        shutil.rmtree(world.model.path)
    elif how == "replaced":
        (tokenizer.parent / "new").write_bytes(content)
        (tokenizer.parent / "new").rename(tokenizer)
    else:
        tokenizer.write_bytes(content + b" ")
    assert world.look() == [MODEL_FILES_CHANGED]
    world.gateway.orders.clear()  # as one that has just come
    assert world.look() == []
    assert world.gateway.degraded == [(MODEL_FILES_CHANGED,)]


def test_a_change_that_is_none_to_the_content_is_none(world):
    world.model.tokenizer.chmod(0o600)
    assert world.look() == []


def test_what_the_next_gateway_needs_is_put_back_also_while_none_is_up(world):
    world.gateway.has_reported = False
    for name in (METRICS_FOLDER, FRONT_FOLDER):
        shutil.rmtree(world.run_dir / name)
        assert world.look() == [RUN_DIR_LOST]
        assert (world.run_dir / name).is_dir()
        assert world.look() == ["run_dir_restored"]


def test_counts_of_several_gateways_that_are_gone_are_written_again(world):
    """Programs that tidy up leave the sockets beside them."""
    counts = count_paths(world.run_dir / METRICS_FOLDER, "gateway")
    other = Gateway([])
    world.generation.gateways.append(other)
    other.name, other.has_reported = "gateway1", False
    world.generation.workers_at *= 2
    world.generation.figures_at *= 2
    world.gateway.sockets += counts
    assert world.look() == [RUN_DIR_LOST]
    assert world.look() == ["run_dir_restored"]
    counts[1].unlink()
    assert world.look() == [RUN_DIR_LOST]
    assert world.look() == ["run_dir_restored"]
