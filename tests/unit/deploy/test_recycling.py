from ostraka.recycling import AGAIN_S, Due, Recycling


def test_the_largest_over_the_limit_is_replaced():
    assert Recycling(100).choose(0.0, {"w0": 101, "w1": 150, "w2": 100}) == Due("w1", is_again=False)


def test_nobody_is_replaced_within_the_limit_or_without_one():
    assert Recycling(100).choose(0.0, {"w0": 100}) is None
    assert Recycling(0).choose(0.0, {"w0": 1 << 40}) is None


def test_the_same_worker_is_left_alone_for_a_while():
    recycling = Recycling(100)
    assert recycling.choose(0.0, {"w0": 101})
    assert recycling.choose(AGAIN_S - 1, {"w0": 101}) is None
    assert recycling.choose(AGAIN_S - 1, {"w0": 300, "w1": 101}) == Due("w1", is_again=False)
    assert recycling.choose(AGAIN_S, {"w0": 101}) == Due("w0", is_again=True)
    assert recycling.choose(4 * AGAIN_S, {"w0": 101}) == Due("w0", is_again=False)
