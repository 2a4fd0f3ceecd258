"""A worker's end, and the note that says of what: waited for, but not for long."""

import pytest

from ostraka_gateway import cluster as cluster_module
from ostraka_gateway.cluster import Cluster
from ostraka_gateway.inquest import NOTE_S
from ostraka_gateway.metrics import Metrics
from ostraka_gateway.roster import Roster
from ostraka_gateway.worker import WorkerState
from ostraka_shared.death_notes import CRASHED, KILLED, find_note, leave_note
from ostraka_shared.messages import Hello, Ready
from tests.clocks import FakeTimeLoop


class DeafSocket:
    def __init__(self, on_message, _on_garbage) -> None:
        self.hear = on_message

    def bind_again(self, endpoint) -> None:
        self.bind(endpoint)

    def bind(self, endpoint) -> None:
        pass

    def await_message(self, _timeout_s) -> None:
        pass

    def send(self, _identity, _message) -> bool:
        return True

    def take_arrived(self) -> None:
        pass

    def close(self) -> None:
        pass


class ToldWatch:
    def __init__(self) -> None:
        self.exits, self.killed, self.siblings = {}, [], True

    def add(self, identity, _host, _pid, on_exit) -> None:
        self.exits[identity] = on_exit

    def core_times(self, _identity) -> None:
        return None

    def is_sibling(self, _identity) -> bool:
        return self.siblings

    def kill(self, identity) -> None:
        self.killed.append(identity)

    def remove(self, identity) -> None:
        self.exits.pop(identity, None)


class Bench:
    """One worker, w0, which is ready; `folder` has the notes."""

    def __init__(self, folder, monkeypatch) -> None:
        monkeypatch.setattr(cluster_module, "WorkerSocket", DeafSocket)
        monkeypatch.setattr(cluster_module, "ProcessWatch", ToldWatch)
        self.loop, self.folder, self.reasons = FakeTimeLoop(), folder, []
        self.roster = Roster("c", "f", self.loop.time())
        self.cluster = Cluster(self.roster, Metrics(), heartbeat_ms=500, queue_tokens=1000)
        self.cluster.dispatcher.take_back = lambda _, reason: self.reasons.append(reason)
        self.watch = self.cluster._watch
        self.call(self.cluster.start, f"ipc://{folder}/workers.sock")
        for message in (Hello("c", "w0", 1, "f", "h", 1, ()), Ready("fake 1", 100, 350.0)):
            self.call(self.cluster._socket.hear, b"w0.1", message)

    def call(self, function, *args) -> None:
        self.loop.call_soon(lambda: function(*args))
        self.loop.settle()

    def end_worker(self) -> None:
        self.call(self.watch.exits[b"w0.1"])


@pytest.fixture
def bench(tmp_path, monkeypatch):
    made = Bench(tmp_path, monkeypatch)
    yield made
    made.call(made.cluster.stop)
    made.loop.close()


@pytest.mark.parametrize("cause", [CRASHED, KILLED])
def test_a_note_that_is_there_is_believed_at_once(bench: Bench, cause: str) -> None:
    leave_note(bench.folder, "w0", 1, cause)
    bench.end_worker()
    assert (bench.reasons, len(bench.roster)) == ([cause], 0)


def test_one_that_comes_is_waited_for_and_no_new_work_is_sent_meanwhile(bench: Bench) -> None:
    bench.end_worker()
    assert bench.reasons == []
    assert [worker.state for worker in bench.roster] == [WorkerState.SUSPECT]
    leave_note(bench.folder, "w0", 1, KILLED)
    bench.loop.advance(NOTE_S / 2)
    assert (bench.reasons, len(bench.roster)) == ([KILLED], 0)


def test_without_a_note_it_is_a_crash(bench: Bench) -> None:
    leave_note(bench.folder, "w0", 0, KILLED)  # of the one before it
    bench.end_worker()
    bench.loop.advance(NOTE_S / 2)
    assert bench.reasons == []
    bench.loop.advance(NOTE_S)
    assert bench.reasons == [CRASHED]


def test_who_has_another_supervisor_or_none_is_not_waited_for(bench: Bench) -> None:
    bench.watch.siblings = False
    bench.end_worker()
    assert bench.reasons == [CRASHED]


def test_one_that_is_killed_for_hanging_is_said_to_have_crashed(bench: Bench) -> None:
    """To other gateways, which see no more than that it has ended; also where the supervisor says otherwise later."""
    for _ in range(20):
        bench.loop.advance(0.4)
    assert (bench.watch.killed, bench.reasons) == ([b"w0.1"], ["silent"])
    leave_note(bench.folder, "w0", 1, KILLED)
    assert find_note(bench.folder, "w0", 1) == CRASHED
