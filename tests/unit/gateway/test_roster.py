from types import SimpleNamespace

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, rule

from ostraka_gateway.roster import Roster
from ostraka_gateway.routing import candidates
from ostraka_gateway.silence import LOAD_S, LOST_BEATS, LOST_CALLS, SUSPECT_BEATS, Silence, forgive
from ostraka_gateway.speeds import measured_speeds, tokens_per_s
from ostraka_gateway.worker import WorkerState, patience_s
from ostraka_shared.messages import Beat, Hello, Ready, Started

BEAT_S = 0.5
SILENT_S = SUSPECT_BEATS * BEAT_S + 0.001
LOST_S = LOST_BEATS * BEAT_S + 0.001
SPEED = 350.0


def hello(name="w0", incarnation=1, cluster="c", fingerprint="f"):
    return Hello(cluster, name, incarnation, fingerprint, "host", 100, (0,))


def identity(name="w0", incarnation=1):
    return f"{name}.{incarnation}".encode()


@pytest.fixture
def roster():
    return Roster("c", "f", 0.0)


def join(roster, name="w0", incarnation=1, now=0.0, *, ready=True):
    """As the cluster greets a worker."""
    said = hello(name, incarnation)
    assert roster.refusal(said) is None
    for earlier in roster.earlier_ones(identity(name, incarnation), said):
        roster.remove(earlier, now)
    worker = roster.join(identity(name, incarnation), said, now)
    if ready:
        roster.ready(worker, Ready("fake 1", 512, SPEED))
    return worker


def hear(roster, worker, now):
    """As the cluster hears any message."""
    if worker.running_tokens:
        roster.call_ended(worker, now)
    roster.heard(worker, now)


def test_a_worker_is_ready_once_it_says_so(roster):
    worker = join(roster, ready=False)
    assert worker.state is WorkerState.STARTING
    assert roster.ready_workers() == []
    roster.ready(worker, Ready("onnxruntime 1.31.1", 512, SPEED))
    assert roster.ready_workers() == [worker]
    assert (worker.engine, worker.credit.tokens) == ("onnxruntime 1.31.1", 512)


def test_a_newer_one_of_the_same_name_and_host_relieves(roster):
    old = join(roster, "w0", 1)
    other = join(roster, "w1", 5)
    assert roster.relieves(hello("w0", 2), old)
    assert not roster.relieves(hello("w0", 1), old)
    assert not roster.relieves(hello("w0", 2), other)
    elsewhere = Hello("c", "w0", 2, "f", "other host", 100, (0,))
    assert not roster.relieves(elsewhere, old)
    new = roster.join(identity("w0", 2), hello("w0", 2), 0.0)
    assert roster.relieved_by(new) == [old]
    assert roster.relieved_by(old) == []


def test_a_worker_of_several_gateways_gives_each_its_part(roster):
    """What it holds for the others is before what it is given next; what they use of its time is not free."""
    worker, other = join(roster), join(roster, "w1")
    for each in (worker, other):
        roster.started(each, Started((), 100, 0))
        hear(roster, each, 100 / SPEED)
    alone_s, speeds = worker.predicted_s, measured_speeds(roster.ready_workers(), 1.0, 1.0)
    roster.started(worker, Started((), 0, 200))
    assert worker.predicted_s == pytest.approx(alone_s + 200 / worker.speed)
    assert candidates([worker, other], 10)[0] is other
    batch_speed = worker.speed
    for each in (worker, other):
        roster.beat(each, Beat(0, 0, 0, 0, 0, 0, credit_tokens=256, free_share=0.5))
    assert measured_speeds(roster.ready_workers(), 1.0, 1.0) == pytest.approx([speed / 2 for speed in speeds])
    assert (worker.credit.tokens, worker.speed) == (256, batch_speed)
    roster.beat(worker, Beat(0, 0, 0, 0, 0, 0))
    assert worker.credit.tokens == 256, "a beat without one leaves it"


@pytest.mark.parametrize(
    ("said", "code"),
    [
        (hello(cluster="other"), "wrong_cluster"),
        (hello(fingerprint="other"), "wrong_model"),
        (hello(incarnation=2), "stale_incarnation"),
    ],
)
def test_who_must_not_join(roster, said, code):
    join(roster, incarnation=3)
    assert roster.refusal(said).code == code


def test_an_incarnation_is_stale_also_when_the_newer_one_is_gone(roster):
    roster.remove(join(roster, incarnation=3), 1.0)
    assert roster.refusal(hello(incarnation=2)).code == "stale_incarnation"
    assert roster.refusal(hello(incarnation=3)) is None
    assert roster.refusal(hello(name="w1", incarnation=1)) is None


def test_a_newer_incarnation_shows_the_older_to_be_gone(roster):
    older, other = join(roster), join(roster, "w1")
    assert roster.earlier_ones(identity(incarnation=2), hello(incarnation=2)) == [older]
    assert list(roster) == [older, other]


def test_an_identity_that_is_here_already_is_replaced(roster):
    worker = join(roster)
    assert roster.earlier_ones(identity(), hello()) == [worker]
    assert roster.earlier_ones(identity(), hello("w9")) == [worker]


def test_restarts_are_incarnations_above_the_first_seen(roster):
    join(roster, incarnation=5)
    assert roster.restarts == {"w0": 0}
    join(roster, incarnation=5)
    assert roster.restarts == {"w0": 0}
    join(roster, incarnation=6)
    join(roster, incarnation=9)
    assert roster.restarts == {"w0": 2}


def test_silence_makes_suspect_and_a_word_ready_again(roster):
    worker = join(roster)
    assert Silence(BEAT_S).judge(roster, SUSPECT_BEATS * BEAT_S)[1] == []
    assert worker.state is WorkerState.READY
    assert Silence(BEAT_S).judge(roster, SILENT_S)[1] == []
    assert worker.state is WorkerState.SUSPECT
    assert roster.ready_workers() == []
    roster.heard(worker, SILENT_S)
    assert roster.ready_workers() == [worker]


def test_silence_for_too_long_is_loss(roster):
    worker = join(roster)
    assert Silence(BEAT_S).judge(roster, LOST_BEATS * BEAT_S)[1] == []
    assert Silence(BEAT_S).judge(roster, LOST_S)[1] == [worker]


@pytest.mark.parametrize("tokens", [1, 256, 8192])
def test_a_call_may_take_its_time(roster, tokens):
    worker = join(roster)
    roster.started(worker, Started(("r",), tokens))
    assert Silence(BEAT_S).judge(roster, SUSPECT_BEATS * BEAT_S + patience_s(tokens, SPEED))[1] == []
    assert worker.state is WorkerState.READY
    assert Silence(BEAT_S).judge(roster, SILENT_S + patience_s(tokens, SPEED))[1] == []
    assert worker.state is WorkerState.SUSPECT
    assert Silence(BEAT_S).judge(roster, LOST_BEATS * BEAT_S + LOST_CALLS * patience_s(tokens, SPEED))[1] == []
    assert Silence(BEAT_S).judge(roster, LOST_S + LOST_CALLS * patience_s(tokens, SPEED))[1] == [worker]


def test_loading_may_take_long_but_not_for_ever(roster):
    worker = join(roster, ready=False)
    assert Silence(BEAT_S).judge(roster, LOAD_S)[1] == []
    assert worker.state is WorkerState.STARTING
    assert Silence(BEAT_S).judge(roster, LOAD_S + 1)[1] == [worker]


@pytest.mark.parametrize("ready", [False, True])
def test_a_draining_worker_gets_no_work_and_stays_so(roster, ready):
    worker = join(roster, ready=ready)
    roster.drain(worker)
    roster.heard(worker, 1.0)
    roster.ready(worker, Ready("fake 1", 512, SPEED))
    Silence(BEAT_S).judge(roster, 1.0 + SILENT_S)
    assert worker.state is WorkerState.DRAINING
    assert roster.ready_workers() == []
    assert Silence(BEAT_S).judge(roster, 1.0 + LOST_S)[1] == [worker]


def test_patience_grows_with_the_call_and_shrinks_with_the_workers_speed():
    assert patience_s(0, SPEED) == 0.0
    assert patience_s(350, SPEED) > 2.0
    assert patience_s(8192, SPEED) > 8 * patience_s(1024, SPEED)
    assert patience_s(256, SPEED / 10) == pytest.approx(10 * patience_s(256, SPEED))
    assert patience_s(256, 0.0) == 0.0


def test_the_time_this_process_stood_still_is_nobodys_silence(roster):
    worker = join(roster)
    forgive(roster, 1000.0)
    assert Silence(BEAT_S).judge(roster, 1000.0 + LOST_S - 0.1)[1] == []
    assert Silence(BEAT_S).judge(roster, 1000.0 + LOST_S + 0.1)[1] == [worker]


def run_call(roster, worker, tokens, seconds, now):
    hear(roster, worker, now)
    roster.started(worker, Started(("r",), tokens))
    hear(roster, worker, now + seconds)
    return now + seconds


def test_speed_is_measured_from_started_to_whatever_comes_next(roster):
    worker = join(roster)
    run_call(roster, worker, 200, 0.25, now=1.0)
    assert worker.tokens_per_s == pytest.approx(800.0, rel=0.1)
    assert (worker.started, worker.running_tokens) == ((), 0)
    assert tokens_per_s(roster.ready_workers()) == worker.tokens_per_s


def test_speed_follows_slowly(roster):
    worker, now = join(roster), 0.0
    now = run_call(roster, worker, 100, 0.1, now)
    now = run_call(roster, worker, 100, 0.2, now)
    assert 500 < worker.tokens_per_s < 1000
    for _ in range(30):
        now = run_call(roster, worker, 100, 0.2, now)
    assert worker.tokens_per_s == pytest.approx(500.0, rel=0.05)


@pytest.mark.parametrize("seconds", [0.0, 1e-6, 1e-3])
def test_a_call_whose_ends_were_read_together_says_little(roster, seconds):
    """A gateway that was busy takes STARTED and RESULT from one read: the queue must not seem to vanish."""
    worker, now = join(roster), 0.0
    for _ in range(5):
        now = run_call(roster, worker, 100, 0.1, now)
    before = worker.tokens_per_s
    run_call(roster, worker, 100, seconds, now)
    assert worker.tokens_per_s == pytest.approx(before, rel=0.25)


def test_only_ready_workers_count_as_speed(roster):
    for name in ("w0", "w1"):
        worker = join(roster, name)
        run_call(roster, worker, 100, 0.1, now=0.0)
    both = tokens_per_s(roster.ready_workers())
    roster.drain(worker)
    assert 0 < tokens_per_s(roster.ready_workers()) == pytest.approx(both / 2)


def test_whom_to_wait_for(roster):
    assert roster.expects_worker(9.0, 10.0), "a predecessor's workers may come"
    assert not roster.expects_worker(10.0, 10.0)
    worker = join(roster, ready=False)
    assert roster.expects_worker(500.0, 10.0)
    roster.drain(worker)
    assert not roster.expects_worker(500.0, 10.0)
    roster.remove(worker, 500.0)
    assert roster.expects_worker(509.0, 10.0)
    assert not roster.expects_worker(510.0, 10.0)


def test_release_of_what_is_not_held_changes_nothing(roster):
    worker = join(roster)
    worker.hold("a", 10, 1)
    worker.release("b")
    assert worker.outstanding_tokens == 10
    worker.release("a")
    worker.release("a")
    assert worker.outstanding_tokens == 0


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
        hear(self.roster, worker, self.now)
        model = self.model[worker.identity]
        model.heard, model.running = self.now, 0
        return model

    @rule(worker=workers, credit=st.integers(1, 600))
    def ready(self, worker, credit):
        if self.is_here(worker):
            self._hear(worker).is_ready = True
            self.roster.ready(worker, Ready("fake 1", credit, SPEED))

    @rule(worker=workers)
    def beat(self, worker):
        if self.is_here(worker):
            self._hear(worker)

    @rule(worker=workers)
    def drain(self, worker):
        if self.is_here(worker):
            self._hear(worker).is_draining = True
            self.roster.drain(worker)

    @rule(worker=workers, tokens=st.integers(1, 2000))
    def started(self, worker, tokens):
        if self.is_here(worker):
            self._hear(worker).running = tokens
            self.roster.started(worker, Started(tuple(worker.held), tokens))

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
            assert self.now - model.heard > (LOST_BEATS * BEAT_S if model.is_ready or model.is_draining else LOAD_S)
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
TestRosterMachine.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
