"""What was mapped from a file is kept, whatever becomes of the file."""

import ctypes
import mmap

from ostraka_worker.own_memory import own_mapped

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
