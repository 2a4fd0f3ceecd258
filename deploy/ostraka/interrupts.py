"""Ctrl-C while modules are imported: a traceback through them would tell nobody anything, and those of native code make
other errors of it."""

import contextlib
import signal
from collections.abc import Iterator


@contextlib.contextmanager
def ending_at_once() -> Iterator[None]:
    """Within, the system ends this process of SIGINT, as it does one without a handler. What is ignored, or already
    somebody's, is left alone."""
    before = signal.getsignal(signal.SIGINT)
    if before is not signal.default_int_handler:
        yield
        return
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
