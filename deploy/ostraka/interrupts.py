"""What Ctrl-C does to a command: its exit code, and how it ends while modules are imported."""

import contextlib
import signal
from collections.abc import Iterator

EXIT_INTERRUPTED = 130
"""As shells have it of a process that SIGINT ended: 128 and the signal's number."""


@contextlib.contextmanager
def ending_at_once() -> Iterator[None]:
    """Around imports: a traceback through them would tell nobody anything, and those of native code make other errors
    of it. Within, the system ends this process of SIGINT, as it does one without a handler. What is ignored, or already
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
