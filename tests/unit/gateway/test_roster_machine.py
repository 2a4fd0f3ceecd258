"""Any sequence of what the cluster may tell of its workers."""

from types import SimpleNamespace

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, rule

from ostraka_gateway import hearing
from ostraka_gateway.roster import Roster
from ostraka_gateway.routing import candidates
from ostraka_gateway.silence import IDLE_S, LOAD_S, LOST_BEATS, Silence
from ostraka_gateway.speeds import tokens_per_s
from ostraka_gateway.worker import WorkerState
from ostraka_shared.messages import Ready, Started
from tests.unit.gateway.workers import BEAT_S, SPEED, hello, identity

NAMES = st.sampled_from(["w0", "w1", "w2"])
INCARNATIONS = st.integers(1, 4)
SECONDS = st.sampled_from([0.0, 0.01, 0.4, 0.9, 1.5, 2.5, 20.0, 400.0])


class RosterMachine(RuleBasedStateMachine):
    """Any sequence of what the cluster may tell the roster. `model` is what the test itself remembers of each worker."""

    workers = Bundle("workers")

    def __init__(self):
        super().__init__()
        self.now = 100.0
        self.roster = Roster("c", "f", 0.0)
        self.model = {}
        self.newest = {}
        self.gone = []
        self.requests = 0

    def is_here(self, worker):
        return self.roster.find(worker.identity) is worker

    def remove(self, worker):
        self.roster.remove(worker, self.now)
        del self.model[worker.identity]
        self.gone.append(worker)

    @rule(target=workers, name=NAMES, incarnation=INCARNATIONS)
    def hello(self, name, incarnation):
        said, key = hello(name, incarnation), identity(name, incarnation)
        refusal = self.roster.refusal(said)
        assert (refusal is not None) == (incarnation < self.newest.get(name, 0))
        if refusal:
            return SimpleNamespace(identity=b"never here")
        for earlier in self.roster.earlier_ones(key, said):
            self.remove(earlier)
        self.newest[name] = incarnation
        worker = self.roster.join(key, said, self.now)
        self.model[key] = SimpleNamespace(is_ready=False, is_draining=False, heard=self.now, running=0)
        return worker

    @rule(name=NAMES, wrong=st.sampled_from(["cluster", "fingerprint"]))
    def stranger(self, name, wrong):
        assert self.roster.refusal(hello(name, 9, **{wrong: "other"})).code in ("wrong_cluster", "wrong_model")

    def _hear(self, worker):
        hearing.heard(worker, self.roster.pace, self.now)
        model = self.model[worker.identity]
        model.heard, model.running = self.now, 0
        return model

    @rule(worker=workers, credit=st.integers(1, 600))
    def ready(self, worker, credit):
        if self.is_here(worker):
            self._hear(worker).is_ready = True
            hearing.ready(worker, Ready("fake 1", credit, SPEED))

    @rule(worker=workers)
    def beat(self, worker):
        if self.is_here(worker):
            self._hear(worker)

    @rule(worker=workers)
    def drain(self, worker):
        if self.is_here(worker):
            self._hear(worker).is_draining = True
            hearing.draining(worker)

    @rule(worker=workers, tokens=st.integers(1, 2000))
    def started(self, worker, tokens):
        if self.is_here(worker):
            self._hear(worker).running = tokens
            hearing.started(worker, Started(tuple(worker.held), tokens))

    @rule(tokens=st.integers(1, 400))
    def send(self, tokens):
        for worker in candidates(self.roster.ready_workers(), tokens)[:1]:
            model = self.model[worker.identity]
            assert model.is_ready
            assert not model.is_draining
            size = worker.credit.size_of(tokens)
            claim = min(tokens, 0 if worker.credit.long_sizes and size else worker.credit.tokens // 2)
            assert not worker.held or worker.credit.claimed + claim <= worker.credit.tokens
            self.requests += 1
            worker.hold(f"r{self.requests}", tokens, self.requests)

    @rule(worker=workers, data=st.data())
    def result(self, worker, data):
        if self.is_here(worker):
            self._hear(worker)
            worker.release(data.draw(st.sampled_from([*worker.held, "r0"])))

    @rule(seconds=SECONDS)
    def silence(self, seconds):
        self.now += seconds
        for worker in Silence(BEAT_S).judge(self.roster, self.now)[1]:
            model = self.model[worker.identity]
            patience_s = LOST_BEATS * BEAT_S if worker.held else IDLE_S
            assert self.now - model.heard > (patience_s if model.is_ready or model.is_draining else LOAD_S)
            self.remove(worker)

    @rule(worker=consumes(workers))
    def leave(self, worker):
        """BYE and exit are the same to the roster."""
        if self.is_here(worker):
            self.remove(worker)

    @invariant()
    def outstanding_is_what_is_held(self):
        for worker in [*self.roster, *self.gone]:
            assert worker.outstanding_tokens == sum(worker.held.values()) >= 0

    @invariant()
    def one_worker_a_name_and_it_is_the_newest(self):
        names = [worker.hello.worker_id for worker in self.roster]
        assert len(names) == len(set(names))
        assert all(worker.hello.incarnation == self.newest[worker.hello.worker_id] for worker in self.roster)
        assert {worker.identity for worker in self.roster} == set(self.model)
        assert len(self.roster) == len(self.model)

    @invariant()
    def only_who_is_ready_is_routable(self):
        for worker in self.roster:
            model = self.model[worker.identity]
            is_routable = worker in self.roster.ready_workers()
            assert is_routable == (worker.state is WorkerState.READY)
            assert not is_routable or (model.is_ready and not model.is_draining)

    @invariant()
    def whoever_was_heard_just_now_is_routable(self):
        for worker in self.roster:
            model = self.model[worker.identity]
            if model.heard == self.now and model.is_ready and not model.is_draining:
                assert worker in self.roster.ready_workers()

    @invariant()
    def speed_is_a_number(self):
        assert 0.0 <= tokens_per_s(self.roster.ready_workers()) < float("inf")


TestRosterMachine = RosterMachine.TestCase
TestRosterMachine.settings = settings(stateful_step_count=40)
