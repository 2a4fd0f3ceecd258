"""A cluster whose workers do anything at any time: whatever happens, each request ends once, whole, right and in time."""

import asyncio
import random

import pytest
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from ostraka_gateway import inquest
from ostraka_gateway.routing import candidates
from ostraka_gateway.worker import WorkerState
from ostraka_shared.messages import Beat, Bye, Drain, Result
from tests.unit.gateway.fake_cluster import NAMES, FakeCluster, result
from tests.unit.gateway.world import question, tokens

COUNTS = st.integers(1, 60)


class ClusterMachine(RuleBasedStateMachine):
    def __init__(self):
        super().__init__()
        self.cluster = FakeCluster()
        self.witness, self.loop, self.roster = self.cluster.witness, self.cluster.loop, self.cluster.roster
        self.parts, self.line = self.cluster.parts, self.cluster.gateway.dispatcher.line

    @property
    def random(self):
        return self.cluster.random

    @initialize(seed=st.integers(0, 2**32))
    def begin(self, seed):
        self.cluster.random = random.Random(seed)
        self.restart_the_dead()

    @rule()
    def restart_the_dead(self):
        for name in NAMES:
            if not any(p.is_alive for p in self.cluster.processes.values() if p.name == name):
                self.cluster.start(name)

    @rule(name=st.sampled_from(NAMES), is_ready=st.booleans(), is_beside=st.booleans())
    def replace(self, name, is_ready, is_beside):
        """The new process says HELLO before the old one's death is noticed, or beside it, which is to leave."""
        self.cluster.start(name, is_ready=is_ready, is_beside=is_beside)

    @rule(count=COUNTS, prompts=st.integers(1, 3), deadline_s=st.sampled_from([3.0, 9.0, 60.0]))
    def ask_about_a_state(self, count, prompts, deadline_s):
        """One of a few, so that some worker keeps it."""
        _, suffixes, _ = self.new_question(count, prompts)
        self.witness.ask((tokens(40, self.random.choice("xyz")), suffixes, 40), deadline_s)

    @rule(count=COUNTS, prompts=st.integers(1, 3), deadline_s=st.sampled_from([0.5, 3.0, 9.0, 60.0]))
    def ask(self, count, prompts, deadline_s):
        self.witness.ask(self.new_question(count, prompts), deadline_s)

    def new_question(self, count, prompts):
        return question(f"r{len(self.witness.asked)}", count, prompts)

    @precondition(lambda self: self.witness.asked)
    @rule(deadline_s=st.sampled_from([0.5, 3.0, 60.0]))
    def ask_the_same(self, deadline_s):
        """As one that is still open, or was."""
        self.witness.ask(self.witness.questions[self.random.choice(list(self.witness.asked)[-4:])], deadline_s)

    @rule(size=st.integers(2, 12))
    def burst(self, size):
        for _ in range(size):
            self.ask(self.random.randint(1, 60), 1, self.random.choice([2.0, 60.0, 60.0]))

    @rule(turns=st.integers(1, 8), failing=st.sampled_from([None, None, None, "engine_failed", "deadline_exceeded"]))
    def work(self, turns, failing):
        """Each worker that moves begins a call, or ends the one it is in; also one that was given up meanwhile."""
        cluster = self.cluster
        for _ in range(turns):
            for process in self.random.sample(list(cluster.processes.values()), len(cluster.processes)):
                if process.is_alive and not process.is_hung:
                    cluster.end_a_call(process, failing) if process.batch else cluster.begin_a_call(process)
            self.let_pass(0.01)

    def let_pass(self, seconds):
        self.loop.advance(seconds)
        self.witness.collect()

    @rule(attempt=st.integers(1, 4))
    def claim(self, attempt):
        """A worker answers what it does not hold: another's request, another attempt, an unknown one."""
        if (process := self.cluster.pick()) and self.witness.asked:
            name = self.random.choice([*self.witness.asked, "unknown"])
            part, worker = self.parts.find(name), self.roster.find(process.identity)
            if part is None or part.holders.get(worker) != attempt:
                process.running = []
                self.cluster.call(self.cluster.say, process, Result(name, attempt, (2 / 3,), 0.0, 0.0))

    @rule(heard=st.booleans(), call=st.booleans(), cause=st.sampled_from(["exit", "exit", "killed"]))
    def die(self, heard, call, cause):
        """Of a signal. What it had sent before may be in the socket still."""
        cluster, blame = self.cluster, self.witness.blame
        alive = [p for p in cluster.processes.values() if p.is_alive]
        if not alive:
            return
        # Best one with a request that was in a crash before: else a second crash is too rare to be seen.
        process = max(alive, key=lambda p: max([blame(w.request_id) + 1 for w in p.queue], default=0))
        if call and not process.batch:
            cluster.begin_a_call(process)
        process.is_alive = False
        if on_exit := cluster.watch.exits.get(process.identity):
            if heard and process.batch:
                cluster.socket.deliver_first = [(process.identity, result(process.batch[0]))]
                process.running = []
            with pytest.MonkeyPatch.context() as monkeypatch:
                monkeypatch.setattr(inquest, "find_note", lambda *_: cause)
                cluster.call(on_exit)
        if self.random.random() < 0.5:
            self.restart_the_dead()

    @rule()
    def hang(self):
        if process := self.cluster.pick(joined=True):
            process.is_hung = True

    @rule()
    def cut_a_link(self):
        if process := self.cluster.pick(joined=True):
            process.is_reachable = False

    @rule()
    def all_is_well_again(self):
        for process in self.cluster.processes.values():
            process.is_reachable, process.is_hung = process.is_alive, False

    @rule(finish=st.booleans())
    def drain(self, finish):
        cluster = self.cluster
        if process := cluster.pick(joined=True):
            cluster.call(cluster.say, process, Drain())
            if finish and not process.batch:
                queue, process.queue = process.queue, []
                for work in queue:
                    cluster.call(cluster.say, process, result(work))
            cluster.call(cluster.say, process, Bye("drained"))
            process.is_alive = False

    @precondition(lambda self: self.witness.asked)
    @rule()
    def client_leaves(self):
        self.witness.asked[self.random.choice(list(self.witness.asked))].cancel()
        self.loop.settle()
        self.witness.collect()

    @rule(beats=st.sampled_from([1, 1, 2, 3, 8]))
    def time_passes(self, beats):
        for _ in range(beats):
            self.let_pass(0.4)
            for process in list(self.cluster.processes.values()):
                if process.is_alive and not process.is_hung and not process.batch:
                    self.cluster.call(self.cluster.say, process, Beat(len(process.queue), 0, 0, 0, 0, 0))

    @precondition(lambda self: self.random.random() < 0.2)
    @rule()
    def the_gateway_itself_is_stopped(self):
        self.let_pass(12.0)

    @invariant()
    def the_count_of_what_waits_is_exact(self):
        waiting = [part for part in self.parts if part.ticket]
        assert self.line.tokens == sum(part.tokens for part in waiting)
        assert self.line.count == len(waiting)
        assert all(part.is_wanted for part in waiting)

    @invariant()
    def every_open_request_waits_or_is_held(self):
        open_ones = self.witness.open_ones()
        assert set(self.witness.single_flight._waiters) == open_ones
        open_ones = {self.witness.first[name] for name in open_ones}
        assert {part.request.request_id for part in self.parts if part.is_wanted} == open_ones
        for part in self.parts:
            assert part.holders or part.ticket, "nobody would miss it"
            for holder in part.holders:
                assert self.roster.find(holder.identity) is holder
                assert part.part_id in holder.held
            if part.ticket:
                assert all(holder.state is WorkerState.SUSPECT for holder in part.holders)

    @invariant()
    def what_is_outstanding_is_what_is_held(self):
        for worker in self.roster:
            assert worker.outstanding_tokens == sum(worker.held.values()) >= 0
            assert worker.credit.claimed == sum(worker.credit._claims.values()) >= 0

    @invariant()
    def of_one_name_the_newest_that_is_ready_gets_the_work(self):
        for worker in self.roster:
            ready = [w for w in self.roster if w.hello.worker_id == worker.hello.worker_id and w.engine]
            is_newest = all(w.hello.incarnation <= worker.hello.incarnation for w in ready)
            assert is_newest or worker.state is not WorkerState.READY

    @invariant()
    def nothing_waits_that_could_be_sent(self):
        for part in self.line.heads()[:1]:
            able = candidates(self.roster.ready_workers(), part.tokens, part.request.state)
            assert not [worker for worker in able if not (part.request.runs_alone and worker.held)]

    def teardown(self):
        """Whatever happened, a minute later each request has ended, and nothing is left of it."""
        self.let_pass(61.0)
        assert set(self.witness.ended) == set(self.witness.asked)
        assert (self.line.tokens, self.line.count, self.witness.single_flight.in_flight_requests) == (0, 0, 0)
        self.cluster.call(self.cluster.gateway.stop)
        assert not asyncio.all_tasks(self.loop)
        self.loop.close()


TestClusterMachine = ClusterMachine.TestCase
# Not shrunk: what a worker does follows from a seed, so that shorter is not simpler, and it would take minutes.
TestClusterMachine.settings = settings(stateful_step_count=50, phases=[Phase.reuse, Phase.generate])


@pytest.mark.parametrize("seed", range(3))
def test_a_silent_worker_whose_successor_is_ready_is_still_not_counted_on(seed):
    machine = ClusterMachine()
    machine.begin(seed=seed)
    machine.burst(size=9)
    machine.hang()
    machine.time_passes(beats=3)
    suspect = next(worker.hello.worker_id for worker in machine.roster if worker.state is WorkerState.SUSPECT)
    machine.replace(name=suspect, is_ready=True, is_beside=True)
    machine.every_open_request_waits_or_is_held()
    machine.teardown()
