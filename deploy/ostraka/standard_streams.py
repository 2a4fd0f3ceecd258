"""Standard input, output and error, where whoever started this process has closed them, or can show few characters."""

import io
import os
import sys

NUMBERS = (0, 1, 2)


def open_closed_ones() -> None:
    """On nothing. The next files to be opened would have their numbers: a gateway is ended by libuv as soon as such a
    one is closed, and a print would go to a client. Children inherit what is opened here."""
    while (descriptor := os.open(os.devnull, os.O_RDWR)) in NUMBERS:
        os.set_inheritable(descriptor, True)  # noqa: FBT003  its own signature
    os.close(descriptor)
    sys.stdin = sys.stdin or open(0, closefd=False)  # noqa: SIM115  by its number, for good
    sys.stdout = sys.stdout or open(1, "w", closefd=False)  # noqa: SIM115
    sys.stderr = sys.stderr or open(2, "w", closefd=False)  # noqa: SIM115


def escape_unknown() -> None:
    """What a terminal's encoding does not have is written as an escape, as Python does on standard error: the name of a
    file may be of any bytes."""
    if isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout.errors == "strict":
        sys.stdout.reconfigure(errors="backslashreplace")
