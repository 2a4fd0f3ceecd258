"""A large array's memory is asked for in large pages, and goes with it."""

import numpy as np
import pytest

from ostraka_worker import large_pages
from tests.unit.worker.mappings import LARGE_PAGES, flags_at


@pytest.mark.parametrize("dtype", [np.float32, np.uint16])
def test_every_element_is_there_once(dtype):
    for parts in (2, 512):
        array = large_pages.empty((parts, 10, 192), dtype)
        assert (array.shape, array.dtype) == ((parts, 10, 192), dtype)
        array[:] = np.arange(parts, dtype=dtype)[:, None, None]
        assert (array == np.arange(parts, dtype=dtype)[:, None, None]).all()


@pytest.mark.skipif(not LARGE_PAGES.exists(), reason="a kernel without large pages")
def test_what_fills_a_large_page_is_asked_for_in_them_until_it_is_gone():
    array = large_pages.empty((large_pages.LARGE_PAGE_BYTES,), np.uint8)
    address = array.ctypes.data
    assert "hg" in flags_at(address)
    part = array[5:9]
    del array
    assert "hg" in flags_at(address), "its part lives"
    del part
    assert "hg" not in flags_at(address)


def test_where_there_is_no_memory_it_is_told_as_ever():
    with pytest.raises(MemoryError):
        large_pages.empty((1 << 50,), np.uint8)
