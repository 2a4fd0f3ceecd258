"""Workers that do what they are told to, before the gateway's real cluster, roster and dispatcher; and a witness, who
knows what was asked, what became of it, and who is to blame for what."""

import random

import pytest

from ostraka_gateway import cluster as cluster_module
from ostraka_gateway.cluster import Cluster
from ostraka_gateway.metrics import Metrics
from ostraka_gateway.parts import KILLS_A_CRASH, MAX_BLAME
from ostraka_gateway.roster import Roster
from ostraka_gateway.worker import WorkerState
from ostraka_shared import errors
from ostraka_shared.codec import decode, encode
from ostraka_shared.messages import Bye, Cancel, Drain, Failed, Hello, Ready, Refused, Result, Started, Welcome, Work
from tests.clocks import FakeTimeLoop
from tests.unit.gateway.world import CREDIT, LIMIT, p_yes_of

NAMES = ("w0", "w1", "w2")


class FakeSocket:
    """What the gateway sends is checked and put into the worker's inbox, if it can be reached."""

    def __init__(self, on_message, on_garbage):
        self.hear = on_message
        self.on_garbage = on_garbage
        self.deliver_first = []

    def bind_again(self, endpoint):
        self.bind(endpoint)

    def bind(self, endpoint):
        pass

    def close(self):
        pass

    def await_message(self, timeout_s):
        pass

    def send(self, identity, message):
        return self.receiver(identity, decode(encode(message)))

    def take_arrived(self):
        arrived, self.deliver_first = self.deliver_first, []
        for identity, message in arrived:
            self.hear(identity, message)


class FakeWatch:
    def __init__(self):
        self.exits = {}
        self.killed = []

    def add(self, identity, _host, _pid, on_exit):
        self.exits[identity] = on_exit

    def core_times(self, _identity):
        return None

    def is_sibling(self, _identity):
        return True

    def kill(self, identity):
        self.killed.append(identity)

    def remove(self, identity):
        self.exits.pop(identity, None)


class FakeWorker:
    def __init__(self, name, incarnation):
        self.name = name
        self.incarnation = incarnation
        self.identity = f"{name}.{incarnation}".encode()
        self.is_alive = True
        self.is_hung = False
        self.is_reachable = True
        self.queue = []
        self.cancelled = set()
        self.running = []
        """The calls it was in when it last spoke: what a crash is held against."""
        self.batch = []

    @property
    def hello(self):
        return Hello("c", self.name, self.incarnation, "f", "h", 1, ())


class Witness:
    """`asked` are the tasks by the requests' names, `ended` what came of those that are done, `first` whose execution
    each shares."""

    def __init__(self, single_flight, loop):
        self.single_flight, self.loop = single_flight, loop
        self.asked, self.ended, self.first, self.questions = {}, {}, {}, {}
        self.crashes, self.kills = {}, {}

    def ask(self, question, deadline_s):
        name = f"r{len(self.asked)}"
        self.questions[name] = question
        asked = self.single_flight.ask(name, question, self.loop.time() + deadline_s)
        self.asked[name] = self.loop.create_task(asked)
        self.loop.settle()
        request = self.single_flight._asked.get(question)
        self.first[name] = request.request_id if request else name
        self.collect()

    def collect(self):
        """Every end is looked at once, and judged."""
        for name, task in self.asked.items():
            if not task.done() or name in self.ended:
                continue
            if task.cancelled():
                self.ended[name] = "left"
                continue
            error = task.exception()
            if error is None:
                assert task.result().p_yes == p_yes_of(self.questions[name][1]), "whole and right"
            elif isinstance(error, errors.PoisonedRequest):
                assert self.blame(self.first[name]) == MAX_BLAME
            else:
                assert isinstance(error, errors.ServingError), error
            self.ended[name] = error or "answered"

    def open_ones(self):
        return {name for name, task in self.asked.items() if not task.done()}

    def blame(self, name):
        return self.crashes.get(name, 0) + self.kills.get(name, 0) // KILLS_A_CRASH

    def hold_against(self, parts, reason):
        if reason in ("exit", "silent", "killed"):
            counts = self.kills if reason == "killed" else self.crashes
            for name in {part.request.request_id for part in parts}:
                counts[name] = counts.get(name, 0) + 1


class FakeCluster:
    """`random` decides what a worker does next."""

    def __init__(self):
        self.loop = FakeTimeLoop()
        with pytest.MonkeyPatch.context() as monkeypatch:
            monkeypatch.setattr(cluster_module, "WorkerSocket", FakeSocket)
            monkeypatch.setattr(cluster_module, "ProcessWatch", FakeWatch)
            self.roster = Roster("c", "f", 0.0)
            self.gateway = Cluster(self.roster, Metrics(), heartbeat_ms=500, queue_tokens=LIMIT)
        self.socket, self.watch = self.gateway._socket, self.gateway._watch
        self.socket.receiver = self.receive
        self.watch.is_running = lambda identity: self.processes[identity].is_alive
        self.parts = self.gateway.dispatcher._table._parts
        self.witness = Witness(self.gateway.single_flight, self.loop)
        self.take_back, self.gateway.dispatcher.take_back = self.gateway.dispatcher.take_back, self.watch_the_end
        self.processes = {}
        self.incarnations = dict.fromkeys(NAMES, 0)
        self.random = random.Random(0)
        self.call(self.gateway.start, "ipc:///nowhere/none")  # where nobody's note can be left

    def call(self, function, *args):
        self.loop.call_soon(lambda: function(*args))
        self.loop.settle()
        self.witness.collect()

    def pick(self, *, joined=False):
        found = [p for p in self.processes.values() if p.is_alive]
        found = [p for p in found if not joined or self.roster.find(p.identity)]
        return self.random.choice(found) if found else None

    def start(self, name, *, is_ready=True, is_beside=False):
        """`is_beside`: to take the place of one that still runs."""
        for old in self.processes.values():
            if old.name == name and not is_beside:
                old.is_alive = False
        self.incarnations[name] += 1
        process = FakeWorker(name, self.incarnations[name])
        self.processes[process.identity] = process
        self.call(self.say, process, process.hello)
        if is_ready:
            self.call(self.say, process, Ready("fake 1", CREDIT, 350.0))

    def say(self, process, message):
        if not isinstance(message, (Result, Failed, Hello)):
            process.running = []
        self.socket.hear(process.identity, message)

    def receive(self, identity, message):
        """What the gateway sends. False where it is not to be reached."""
        process = self.processes.get(identity)
        if process is None or not process.is_reachable:
            return False
        match message:
            case Work():
                self.check(identity, message)
                process.queue.append(message)
            case Cancel():
                process.cancelled.add((message.request_id, message.attempt))
            case Drain():
                self.loop.call_soon(self.leave, process)
            case Refused(code="unknown_worker"):
                process.queue.clear()
                if process.is_alive:
                    self.loop.call_soon(self.introduce, process)
            case Refused():
                process.is_alive = False
            case _:
                assert isinstance(message, Welcome)
        return True

    def check(self, identity, work):
        assert self.roster.find(identity).state is WorkerState.READY
        first, witness = work.request_id.partition("/")[0], self.witness
        assert any(witness.first.get(name, name) == first for name in witness.open_ones())
        holders = self.parts.find(work.request_id).holders
        suspects = [holder for holder in holders if holder.state is WorkerState.SUSPECT]
        assert witness.blame(first) + len(suspects) < MAX_BLAME, "a third try"
        assert {holder.identity for holder in holders} - {holder.identity for holder in suspects} == {identity}
        assert work.deadline_ms >= 1

    def introduce(self, process):
        self.say(process, process.hello)
        self.say(process, Ready("fake 1", CREDIT, 350.0))

    def leave(self, process):
        """It finishes what it holds. One that hangs does not."""
        if not process.is_alive or process.is_hung:
            return
        self.say(process, Drain())
        held, process.batch, process.queue = [*process.batch, *process.queue], [], []
        for work in held:
            if (work.request_id, work.attempt) not in process.cancelled:
                self.say(process, result(work))
        self.say(process, Bye("drained"))
        process.is_alive = False

    def begin_a_call(self, process):
        for work in [each for each in process.queue if (each.request_id, each.attempt) in process.cancelled]:
            if work not in process.queue:
                continue  # refused meanwhile, by a gateway that does not know it any more
            process.queue.remove(work)
            self.call(self.say, process, Failed(work.request_id, work.attempt, "cancelled", "why"))
        size = self.random.randint(1, 4)
        process.batch, process.queue = process.queue[:size], process.queue[size:]
        if process.batch:
            names = tuple(work.request_id for work in process.batch)
            is_known = self.roster.find(process.identity)
            self.call(self.say, process, Started(names, sum(work.tokens for work in process.batch)))
            process.running = list(names) if is_known else []

    def end_a_call(self, process, failing):
        batch, process.batch, process.running = process.batch, [], []
        for work in batch:
            failed = Failed(work.request_id, work.attempt, failing or "", "why")
            self.call(self.say, process, failed if failing else result(work))

    def watch_the_end(self, worker, reason):
        """Where a process died before its STARTED was heard, it can only be told of one that it held alone."""
        identity = worker.identity
        running = self.processes[identity].running or (list(worker.held) if len(worker.held) == 1 else [])
        parts = [part for name in running if (part := self.parts.find(name))]
        self.witness.hold_against([part for part in parts if part.is_wanted and worker in part.holders], reason)
        self.take_back(worker, reason)


def result(work):
    return Result(work.request_id, work.attempt, p_yes_of(work.suffixes), 0.5, 0.5)
