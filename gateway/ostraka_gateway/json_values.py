"""How many values a JSON text holds, told before it is parsed: a value takes up to 250 bytes, and an object's two
characters as much as a page of text. It does not judge whether the text is JSON."""

import numpy as np

from ostraka_shared.errors import InvalidRequest

VALUES_MAX = 300_000
"""Twice as many as a state of 256,000 bytes can hold. They take 75 MB at most, and a fifth of a second."""
BLOCK_BYTES = 1 << 16
"""Looked at together: other threads get their turn in between."""

_ESCAPED = ((b"\\\\", b"  "), (b'\\"', b"  "))
_QUOTE = ord('"')
_MARKS = np.zeros(256, np.bool_)
_MARKS[list(b",[{")] = True
"""There are no more values than these, outside strings, and one."""


def check_values(body: bytes) -> None:
    """Raises InvalidRequest. At most that many bytes, as most bodies have, hold no more values."""
    if len(body) > VALUES_MAX and _exceeds(body, VALUES_MAX):
        raise InvalidRequest(f"the body holds more than {VALUES_MAX} JSON values", loc=("body",))


def _exceeds(body: bytes, most: int) -> bool:
    count, is_in_string, at = 0, False, 0
    while at < len(body):
        block = body[at : at + BLOCK_BYTES]
        at += len(block)
        if (len(block) - len(block.rstrip(b"\\"))) % 2:  # the last one escapes what comes next
            block += body[at : (at := at + 1)]
        marks, is_in_string = _count_marks(block, is_in_string=is_in_string)
        if (count := count + marks) > most:
            return True
    return False


def _count_marks(block: bytes, *, is_in_string: bool) -> tuple[int, bool]:
    for escaped, blank in _ESCAPED:
        block = block.replace(escaped, blank)
    found = np.frombuffer(block, np.uint8)
    quotes = np.cumsum(found == _QUOTE, dtype=np.uint8)  # it may overflow: only the last bit counts
    quotes += is_in_string
    quotes &= 1
    return int(np.count_nonzero(_MARKS[found] & (quotes == 0))), bool(quotes[-1])
