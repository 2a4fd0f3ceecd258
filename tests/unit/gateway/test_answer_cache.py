from hypothesis import given
from hypothesis import strategies as st

from ostraka_gateway.answer_cache import AnswerCache, _size


def question(number, length=10):
    return bytes([number]) * length, (b"\1\0\0\0",), 0


SIZE = _size(question(1))


def test_what_was_answered_is_found_by_the_same_model_alone():
    cache = AnswerCache(10 * SIZE)
    cache.keep("f", question(1), (0.25,))
    assert cache.find("f", question(1)) == (0.25,)
    assert cache.find("another", question(1)) is None
    assert cache.find("f", question(2)) is None
    assert cache.hits == 1


def test_the_least_recently_used_goes_first():
    cache = AnswerCache(2 * SIZE)
    for number in (1, 2):
        cache.keep("f", question(number), (number / 10,))
    cache.find("f", question(1))
    cache.keep("f", question(3), (0.3,))
    assert [cache.find("f", question(number)) for number in (1, 2, 3)] == [(0.1,), None, (0.3,)]


def test_without_bytes_nothing_is_kept():
    cache = AnswerCache(0)
    cache.keep("f", question(1), (0.25,))
    assert (cache.find("f", question(1)), cache.bytes) == (None, 0)


@given(st.lists(st.tuples(st.integers(0, 20), st.integers(1, 2000)), max_size=60), st.integers(0, 5000))
def test_its_bytes_are_bounded_and_counted_exactly(questions, most_bytes):
    cache = AnswerCache(most_bytes)
    for each in questions:
        cache.keep("f", question(*each), (0.5,))
        assert cache.bytes == sum(_size(asked) for _, asked in cache._answers) <= most_bytes
