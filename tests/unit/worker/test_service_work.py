"""What a worker does with the work it is given: each request is answered once, rightly, or not run at all."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ostraka_shared.messages import Beat, Bye, Cancel, Failed, Ready, Result, Started
from tests.unit.worker.serving import BUDGET, END, FAIL, NAN, READY, failures, make_world, results, work
from tests.works import expected


def test_one_request(world):
    each = work("a", 3, 5, prefix=2)
    said = world.run([each])
    assert said[:2] == [READY, Started(("a",), 12)]  # a prefix too short to be read apart
    assert said[2] == Result("a", 1, expected(each), 0.0, pytest.approx(12.0))
    assert said[3:] == END


def test_the_attempt_is_given_back(world):
    (result,) = results(world.run([work("a", 3, attempt=7)]))
    assert result.attempt == 7


def test_waiting_requests_share_a_call_in_order(world):
    works = [work("a", 5), work("b", 4, token=2), work("c", 7, token=3), work("d", 1)]
    said = world.run(works)
    assert said[1] == Started(("b", "a", "c"), 16)  # within a call from short to long
    assert [(each.request_id, each.p_yes) for each in said[2:5]] == [(w.request_id, expected(w)) for w in works[:3]]
    assert said[5] == Started(("d",), 1)
    assert results(said)[3].queue_ms == pytest.approx(16.0)


def test_queue_time_is_from_receipt_to_the_first_call(world):
    found = results(world.run([work("a", 16)], [], world.after(0.004, work("b", 16), work("c", 16)), []))
    assert [each.queue_ms for each in found] == pytest.approx([0.0, 0.0, 16.0])
    assert [each.inference_ms for each in found] == pytest.approx([16.0, 16.0, 16.0])


def test_a_large_request_is_read_in_calls_each_announced(world):
    each = work("a", 10, 10, 20)
    said = world.run([each])
    assert said[1:4] == [Started(("a",), 10), Started(("a",), 10), Started(("a",), 20)]
    assert said[4] == Result("a", 1, expected(each), 0.0, pytest.approx(40.0))


def test_between_the_calls_of_a_large_request_it_hears_and_beats(world):
    late = work("b", 2)
    said = world.run([work("a", 300, 350)], [late])
    kinds = [type(message) for message in world.link.sent]
    assert kinds[:4] == [Ready, Started, Beat, Started]
    assert [each.tokens for each in said if isinstance(each, Started)] == [150, 2, 175, 150, 175]  # pieces of both
    assert [each.request_id for each in results(said)] == ["b", "a"], "a short one waits for one call at most"
    assert (results(said)[0].queue_ms, results(said)[0].inference_ms) == pytest.approx((0.0, 2.0))
    assert results(said)[1].inference_ms == pytest.approx(650.0)  # its own calls alone


def test_a_beat_between_calls_says_what_waits(world):
    world.run([work("a", 600, 700), work("b", 2), work("c", 16)], [], [])
    (beat, *_) = (message for message in world.link.sent if isinstance(message, Beat))
    assert (beat.queued_requests, beat.queued_tokens) == (2, 1316), "the short ones were begun first"


def test_what_is_cancelled_while_it_waits_is_not_run(world):
    said = world.run([work("a", 16), work("b", 4), Cancel("b", 1), Cancel("a", 9), Cancel("unknown", 1)])
    assert failures(said) == [("b", "cancelled")]
    assert world.engine.calls == [[16]]


def test_a_large_request_stops_at_the_call_after_it_was_cancelled(world):
    said = world.run([work("a", *[100] * 50)], [], [Cancel("a", 1), work("b", 2)])
    assert world.engine.calls == [[100], [100], [2]]
    assert failures(said) == [("a", "cancelled")]
    assert [each.request_id for each in results(said)] == ["b"]


def test_an_answer_on_its_way_cannot_be_cancelled(world):
    said = world.run([work("a", 16)], [Cancel("a", 1)])
    assert failures(said) == []
    assert [each.request_id for each in results(said)] == ["a"]


def test_it_never_waits_while_something_is_queued(world):
    world.run([work(name, 16) for name in "abc"], [], [])
    assert world.link.waits[1:3] == [0.0, 0.0]


def test_a_failing_request_fails_alone(world):
    works = [work("a", 3), work("b", 3, token=FAIL), work("c", 3, token=2), work("d", 3, token=NAN)]
    said = world.run(works)
    assert failures(said) == [("b", "engine_failed"), ("d", "engine_failed")]
    assert [(each.request_id, each.p_yes) for each in results(said)] == [
        ("a", expected(works[0])),
        ("c", expected(works[2])),
    ]
    assert [message.request_id for message in said if isinstance(message, (Result, Failed))] == ["a", "b", "c", "d"]


def test_a_logit_that_is_no_number_is_a_failure(world):
    assert failures(world.run([work("a", 3, token=NAN)])) == [("a", "engine_failed")]
    assert results(world.link.said) == []


def test_it_serves_on_after_a_failure(world):
    assert [each.request_id for each in results(world.run([work("a", 3, token=FAIL)], [work("b", 3)]))] == ["b"]


def test_expired_work_is_answered_but_not_run(world):
    said = world.run([work("a", 16), work("b", 4, deadline_ms=16), work("c", 5, deadline_ms=17)])
    assert failures(said) == [("b", "deadline_exceeded")]
    assert [each.request_id for each in results(said)] == ["a", "c"]
    assert world.engine.calls == [[16], [5]]  # c would have shared a call with b


def test_a_large_request_is_given_up_between_calls_once_nobody_waits(world):
    said = world.run([work("a", *[100] * 50, deadline_ms=250)], [work("b", 2)])
    assert len([message for message in said if isinstance(message, Started)]) == 3 + 1
    assert failures(said) == [("a", "deadline_exceeded")]
    assert [each.request_id for each in results(said)] == ["b"]


def test_what_was_paid_for_is_answered_even_after_the_deadline(world):
    """The gateway's clock decides; this one only saves work not yet done."""
    assert failures(world.run([work("a", 100, deadline_ms=50)])) == []
    assert len(results(world.link.said)) == 1


STEP = st.lists(
    st.builds(
        lambda name, lengths, prefix, deadline_ms, token: work(
            name, *lengths, prefix=prefix, deadline_ms=deadline_ms, token=token
        ),
        st.uuids().map(str),
        st.lists(st.integers(1, 12), min_size=1, max_size=4),
        st.integers(0, 6),
        st.integers(1, 200),
        st.sampled_from([1, 2, 3, FAIL, NAN]),
    ),
    max_size=4,
)


@given(st.lists(STEP, max_size=8))
def test_every_request_is_answered_exactly_once_and_rightly(steps):
    with pytest.MonkeyPatch.context() as monkeypatch:
        world = make_world(monkeypatch)
        said = world.run(*steps)
    works = [each for step in steps for each in step]
    answers = [message for message in said if isinstance(message, (Result, Failed))]
    assert sorted(each.request_id for each in answers) == sorted(each.request_id for each in works)
    by_id = {each.request_id: each for each in answers}
    for each in works:
        answer = by_id[each.request_id]
        if isinstance(answer, Result):
            assert answer.p_yes == expected(each)
        else:
            is_bad = int.from_bytes(each.suffixes[0][:4], "little") in (FAIL, NAN)
            assert answer.code == "deadline_exceeded" or (is_bad and answer.code == "engine_failed")
    order = [each.request_id for each in results(said)]
    for is_long in (False, True):
        line = [each.request_id for each in works if (each.tokens > BUDGET) is is_long and each.request_id in order]
        assert [name for name in order if name in line] == line
    assert said[0] == READY
    assert said[-1] == Bye("drained")
    for place, message in enumerate(said):  # each result had its STARTED before it
        if isinstance(message, Result):
            assert any(isinstance(s, Started) and message.request_id in s.request_ids for s in said[:place])
