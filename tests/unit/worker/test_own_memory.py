"""What was mapped from a file is kept, whatever becomes of the file."""

import ctypes
import mmap

import pytest

from ostraka_worker.own_memory import joined, own_mapped
from tests.unit.worker.mappings import LARGE_PAGES, flags_at

PAGES = 3


def test_what_was_mapped_outlives_the_files_change_cut_and_end(tmp_path):
    path = tmp_path / "weights"
    content = bytes(range(256)) * 16 * PAGES
    path.write_bytes(content)
    with path.open("rb") as file:
        mapped = mmap.mmap(file.fileno(), 0, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ | mmap.PROT_WRITE)
    address = ctypes.addressof(ctypes.c_char.from_buffer(mapped))
    assert own_mapped([tmp_path / "another"]) == 0
    assert own_mapped([path]) == len(content)
    assert own_mapped([path]) == 0, "none is left"
    with path.open("r+b") as file:
        file.write(b"\xff" * len(content))
        file.truncate(0)  # to read what was mapped would now end the process
    path.unlink()
    assert ctypes.string_at(address, len(content)) == content


def test_mappings_that_lie_end_to_end_are_copied_as_one():
    assert list(joined([(0, 4), (4, 8), (16, 2), (18, 2), (32, 1)])) == [(0, 12), (16, 4), (32, 1)]
    assert not list(joined([]))


@pytest.mark.skipif(not LARGE_PAGES.exists(), reason="a kernel without large pages")
def test_the_copy_is_asked_for_in_large_pages(tmp_path):
    path = tmp_path / "weights"
    path.write_bytes(bytes(PAGES * mmap.PAGESIZE))
    with path.open("rb") as file:
        mapped = mmap.mmap(file.fileno(), 0, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ | mmap.PROT_WRITE)
    address = ctypes.addressof(ctypes.c_char.from_buffer(mapped))
    own_mapped([path])
    assert "hg" in flags_at(address)
