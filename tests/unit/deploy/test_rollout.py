"""The rollout's decisions: the way through, each way out, and what no order of events may bring about."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ostraka.rollout import (
    OVER,
    SHARES,
    SWITCH_S,
    Accept,
    Accepting,
    Alone,
    Cancelled,
    DrainOld,
    EndNew,
    Measured,
    Mirror,
    NewDied,
    NewGone,
    NewReady,
    OldGatewayDied,
    OldGone,
    PassOn,
    Phase,
    Rollout,
    RolloutPlan,
    Say,
    Tick,
)
from ostraka_gateway.shadow import Figures

PLAN = RolloutPlan(requests=10, shadow_s=60.0, shift_s=6.0, ready_s=300.0)
ALIKE = Figures(requests=10, answers=10, probabilities=10, old_s=1.0, new_s=1.0)
ON_THE_WAY = (Phase.STARTING, Phase.SHADOWING, Phase.SHIFTING, Phase.SWITCHING)


class Run:
    """A rollout and its clock; `done` are the instructions so far, less what was said."""

    def __init__(self, plan=PLAN):
        self.rollout = Rollout(plan, 0.0)
        self.now = 0.0
        self.done, self.said = [], []

    def tell(self, event, after_s=0.0):
        self.now += after_s
        new = self.rollout.handle(event, self.now)
        self.said += [each for each in new if isinstance(each, Say)]
        new = [each for each in new if not isinstance(each, Say)]
        self.done += new
        return new

    def until(self, phase):
        """By the shortest way."""
        ways = {
            Phase.STARTING: lambda: self.tell(NewReady()),
            Phase.SHADOWING: lambda: self.tell(Measured(ALIKE)),
            Phase.SHIFTING: lambda: self.tell(Tick(), 2.0),
            Phase.SWITCHING: lambda: self.tell(Accepting()),
            Phase.DRAINING: lambda: self.tell(OldGone()),
        }
        while self.rollout.phase is not phase:
            ways[self.rollout.phase]()
        return self


def test_the_way_through():
    run = Run().until(Phase.DONE)
    assert run.done == [Mirror(PLAN.share), *map(PassOn, SHARES), Accept(), DrainOld()]
    assert run.said[-1].fields["figures"]["requests"] == 10


def test_without_requests_to_compare_nothing_is_mirrored():
    run = Run(replace(PLAN, requests=0))
    assert run.tell(NewReady()) == [PassOn(SHARES[0])]


def test_shares_grow_in_their_time():
    run = Run().until(Phase.SHIFTING)
    assert run.tell(Tick(), 1.9) == []
    assert run.tell(Tick(), 0.1) == [PassOn(SHARES[1])]


@pytest.mark.parametrize("phase", ON_THE_WAY)
@pytest.mark.parametrize(
    ("event", "says"),
    [
        (NewDied("w0", "SIGKILL"), "w0 of the new generation died (SIGKILL)"),
        (OldGatewayDied("SIGKILL"), "the gateway that serves died"),
        (Cancelled("the server is stopping"), "the server is stopping"),
        (Measured(replace(ALIKE, errors=1)), "failed 1 requests that the old one answered"),
        (Measured(replace(ALIKE, taken_back=2)), "failed 2 requests, which the old one answered then"),
    ],
)
def test_given_up_at_any_moment_the_old_one_is_alone(phase, event, says):
    run = Run().until(phase)
    done = run.tell(event)
    has_clients = phase is Phase.SWITCHING  # it may have accepted some
    assert done == ([EndNew()] if phase is Phase.STARTING else [Alone(), EndNew(has_clients)])
    assert says in run.said[-1].fields["reason"]
    assert run.rollout.phase is Phase.ABORTING
    run.tell(NewGone())
    assert run.rollout.phase is Phase.ABORTED
    assert says in run.said[-1].fields["reason"]


@pytest.mark.parametrize(
    ("figures", "says"),
    [
        (replace(ALIKE, difference_sum=2.0), "differ by 0.2000 on average, more than 0.1"),
        (replace(ALIKE, flips=1), "1 of 10 answers decide otherwise, more than a share of 0.05"),
    ],
)
def test_divergence_is_judged_when_enough_was_compared(figures, says):
    run = Run().until(Phase.SHADOWING)
    assert run.tell(Measured(replace(figures, requests=9))) == []
    assert run.tell(Measured(figures)) == [Alone(), EndNew()]
    assert says in run.said[-1].fields["reason"]


@pytest.mark.parametrize(
    ("plan", "figures"),
    [
        (replace(PLAN, max_difference=0.2), replace(ALIKE, difference_sum=2.0)),
        (replace(PLAN, max_flips=0.1), replace(ALIKE, flips=1)),
    ],
)
def test_how_much_divergence_is_too_much_can_be_said(plan, figures):
    run = Run(plan).until(Phase.SHADOWING)
    assert run.tell(Measured(figures)) == [PassOn(SHARES[0])]


@pytest.mark.parametrize("phase", [Phase.DRAINING, Phase.DONE])
@pytest.mark.parametrize(
    "event", [NewDied("w0", "1"), OldGatewayDied("1"), Cancelled("x"), Measured(Figures(errors=1))]
)
def test_after_the_switch_there_is_no_way_back(phase, event):
    run = Run().until(phase)
    assert run.tell(event) == []
    assert run.rollout.phase is phase


@pytest.mark.parametrize(
    ("phase", "after_s", "says"),
    [
        (Phase.STARTING, PLAN.ready_s, "not ready within 300 s"),
        (Phase.SHADOWING, PLAN.shadow_s, "too little traffic: 0 of 10"),
        (Phase.SWITCHING, SWITCH_S, "did not begin to accept"),
    ],
)
def test_what_takes_too_long_ends_it(phase, after_s, says):
    run = Run()
    if phase is not Phase.STARTING:
        run.tell(NewReady())
    run.until(phase)
    assert run.tell(Tick(), after_s - 0.1) == []
    assert EndNew(phase is Phase.SWITCHING) in run.tell(Tick(), 0.1)
    assert says in run.said[-1].fields["reason"]


def test_with_too_little_traffic_it_says_what_would_do():
    run = Run().until(Phase.SHADOWING)
    run.tell(Tick(), PLAN.shadow_s)
    assert all(flag in run.said[-1].fields["reason"] for flag in ("--share", "--when-quiet go", "--requests 0"))


def test_with_too_little_traffic_it_may_go_on_and_says_so():
    run = Run(replace(PLAN, when_quiet="go")).until(Phase.SHADOWING)
    assert run.tell(Tick(), PLAN.shadow_s) == [PassOn(SHARES[0])]
    assert "0 of 10 requests were compared" in run.said[-2].fields["too_quiet"]


def test_what_little_there_was_is_judged_all_the_same():
    run = Run(replace(PLAN, when_quiet="go")).until(Phase.SHADOWING)
    run.tell(Measured(Figures(requests=1, answers=1, probabilities=1, difference_sum=1.0)))
    assert run.tell(Tick(), PLAN.shadow_s) == [Alone(), EndNew()]


@pytest.mark.parametrize("wrong", [{"share": 1.1}, {"requests": -1}, {"when_quiet": "perhaps"}])
def test_a_plan_that_cannot_be_is_refused(wrong):
    with pytest.raises(ValueError):
        RolloutPlan(**wrong)


EVENTS = st.one_of(
    st.sampled_from(
        [NewReady(), Accepting(), OldGone(), NewGone(), NewDied("w0", "1"), OldGatewayDied("1"), Cancelled("x"), Tick()]
    ),
    st.builds(
        lambda **figures: Measured(Figures(**figures)),
        requests=st.integers(0, 20),
        answers=st.integers(0, 20),
        flips=st.integers(0, 2),
        errors=st.integers(0, 1),
        taken_back=st.integers(0, 1),
    ),
)


@given(
    st.lists(st.tuples(EVENTS, st.sampled_from([0.0, 1.0, 2.0, 70.0, 400.0])), max_size=40),
    st.sampled_from([PLAN, replace(PLAN, requests=0), replace(PLAN, when_quiet="go")]),
)
def test_whatever_happens_one_generation_is_left_to_serve(events, plan):
    run = Run(plan)
    for event, after_s in events:
        was_over = run.rollout.phase in OVER
        assert not (run.tell(event, after_s) and was_over)
    ends = [each for each in run.done if isinstance(each, EndNew)]
    assert run.done.count(DrainOld()) + len(ends) <= 1
    if DrainOld() in run.done:  # nobody is sent away before somebody else takes them
        assert run.done[-2:] == [Accept(), DrainOld()]
    if ends:
        assert run.done[-1] == EndNew(Accept() in run.done)
        assert run.done == ends or run.done[-2] == Alone()
    assert (run.rollout.phase in (Phase.DRAINING, Phase.DONE)) == (DrainOld() in run.done)
    assert (run.rollout.phase in (Phase.ABORTING, Phase.ABORTED)) == bool(ends)
    assert sum(said.phase in OVER for said in run.said) <= 1
    shares = [each.share for each in run.done if isinstance(each, PassOn)]
    assert shares == sorted(shares)
