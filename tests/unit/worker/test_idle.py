from ostraka_worker.idle import LONGEST_S, IdleCalls


def test_a_call_is_due_after_so_long_without_work_and_again_after_each():
    calls = IdleCalls(2.0, now=10.0)
    assert (calls.is_due(11.9), calls.is_due(12.0)) == (False, True)
    calls.worked(12.5)
    assert (calls.is_due(14.4), calls.is_due(14.5)) == (False, True)
    calls.called(14.5, 14.51)
    assert (calls.is_due(16.5), calls.is_due(16.51)) == (False, True)


def test_none_is_ever_due_where_they_are_off():
    calls = IdleCalls(0.0, now=10.0)
    assert not calls.is_due(1e9)


def test_a_model_whose_short_call_is_long_is_left_alone():
    calls = IdleCalls(1.0, now=0.0)
    calls.called(1.0, 1.0 + LONGEST_S + 0.1)
    assert calls.is_due(3.0)  # it may have been disturbed
    calls.called(3.0, 3.1)
    calls.called(5.0, 6.0)
    assert calls.is_due(8.0)
    calls.called(8.0, 9.0)
    assert not calls.is_due(1e9)
