import pytest

from ostraka_gateway import timeline
from ostraka_gateway.timeline import Timeline
from tests.clocks import FakeClock


@pytest.fixture
def clock(monkeypatch):
    return FakeClock().install(monkeypatch, timeline)


def decide(clock):
    found = Timeline()
    for stage, seconds in (("parse", 0.001), ("validate", 0.00025), ("tokenize", 0.0123456)):
        clock.advance(seconds)
        found.mark(stage)
    clock.advance(0.1)
    found.mark_asked(queue_ms=60.0, inference_ms=40.04)
    clock.advance(0.000004)
    found.mark("respond")
    return found


def test_the_header_has_jevs_segments_in_its_order_and_precision(clock):
    assert decide(clock).finish() == (
        "parse;dur=1.00, validate;dur=0.25, tokenize;dur=12.35, queue;dur=60.00, inference;dur=40.0, "
        "respond;dur=0.00, total;dur=113.6"
    )


def test_a_stage_that_did_not_happen_took_no_time(clock):
    found = Timeline()
    clock.advance(0.5)
    assert found.finish() == (
        "parse;dur=0.00, validate;dur=0.00, tokenize;dur=0.00, queue;dur=0.00, inference;dur=0.0, "
        "respond;dur=0.00, total;dur=500.0"
    )


def test_stages_in_seconds_for_the_histograms(clock):
    found = decide(clock)
    found.finish()
    assert found.seconds == pytest.approx(
        {
            "parse": 0.001,
            "validate": 0.00025,
            "tokenize": 0.0123456,
            "queue": 0.06,
            "inference": 0.04004,
            "respond": 0.000004,
            "total": 0.1135996,
        }
    )


def test_a_restart_forgets_the_time_before(clock):
    found = Timeline()
    clock.advance(5.0)
    found.restart()
    clock.advance(0.25)
    found.mark("parse")
    assert found.finish().startswith("parse;dur=250.00,")
    assert found.seconds["total"] == pytest.approx(0.25)
