import pytest

from ostraka_worker.sharing import ASKED_S, REMEMBERED_S, Sharing


@pytest.fixture
def sharing():
    return Sharing(512, 256, 3)


def test_who_asks_alone_has_all(sharing):
    sharing.asked(1, 10.0)
    assert sharing.credit_of(1, 10.0) == 512
    assert sharing.free_share(1, 10.0) == 1.0
    assert Sharing(512, 256, 1).credit_of(0, 0.0) == 512


def test_those_that_ask_share_and_who_does_not_finds_its_part_when_it_comes(sharing):
    sharing.asked(0, 10.0)
    sharing.asked(1, 10.0)
    assert [sharing.credit_of(gateway, 10.0) for gateway in range(3)] == [256, 256, 256]
    assert sharing.credit_of(0, 10.0 + ASKED_S) == 512, "nobody else has asked for a while"


def test_nobody_has_less_than_a_batch(sharing):
    assert Sharing(512, 256, 8).credit_of(0, 0.0) == 512
    busy = Sharing(512, 256, 8)
    for gateway in range(8):
        busy.asked(gateway, 0.0)
    assert busy.credit_of(0, 0.0) == 256


def test_what_others_use_is_not_free_but_a_fair_part_always_is(sharing):
    sharing.asked(0, 10.0)
    sharing.asked(1, 10.0)
    now = 10.0
    for _ in range(100):  # a quarter of the time for 1, of all the time
        now += 0.1
        sharing.used(0.1, [75, 25, 0], now)
        sharing.asked(0, now)
        sharing.asked(1, now)
    assert sharing.free_share(0, now) == pytest.approx(0.75, abs=0.03)
    assert sharing.free_share(1, now) == 0.5
    assert sharing.free_share(0, now + 10 * REMEMBERED_S) == pytest.approx(1.0, abs=0.01), "it is forgotten"
