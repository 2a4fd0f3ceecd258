"""How often, and how long, the gateway looks away while it refuses."""

from ostraka_gateway.lull import CALLS, PATIENT_S, REST_S, Lull
from tests.waiting import let_run


async def test_it_rests_once_for_all_that_were_refused_in_a_turn():
    rests = []
    lull = Lull(lambda: 1.0, rests.append)
    for _ in range(3):
        lull.follow(2.0)
    assert rests == [], "their answers have not left"
    await let_run()
    assert rests == [REST_S]
    lull.follow(PATIENT_S)
    await let_run()
    assert rests == [REST_S] * 2


async def test_a_short_deadline_is_no_reason():
    rests = []
    Lull(lambda: 1.0, rests.append).follow(PATIENT_S / 2)
    await let_run()
    assert rests == []


async def test_no_worker_runs_dry_meanwhile():
    rests = []
    for call_s in (0.0, REST_S, 2 * CALLS * REST_S):
        Lull(lambda call_s=call_s: call_s, rests.append).follow(2.0)
    await let_run()
    assert rests == [REST_S / CALLS, REST_S]
