"""What the kernel says of this process's memory."""

import re
from pathlib import Path

LARGE_PAGES = Path("/sys/kernel/mm/transparent_hugepage")
"""Of a kernel that has them."""


def flags_at(address):
    """Of the mapping that the address lies in; none where nothing is mapped."""
    for mapping in re.split(
        r"^(?=[0-9a-f]+-)", Path("/proc/self/smaps").read_text(encoding="utf-8"), flags=re.MULTILINE
    ):
        if not mapping:
            continue
        first, last = (int(each, 16) for each in mapping.split(maxsplit=1)[0].split("-"))
        if first <= address < last:
            return mapping.partition("VmFlags:")[2].split()
    return []
