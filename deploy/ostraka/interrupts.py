"""What Ctrl-C and its like do to a command: its exit code, how it ends while modules are imported, and in order."""

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


@contextlib.contextmanager
def ending_in_order(*numbers: signal.Signals) -> Iterator[None]:
    """Within, these signals raise SystemExit, as Ctrl-C raises KeyboardInterrupt: what is half-made is put away. (The
    system would not end a container's first process of them at all.) What is ignored, or somebody's, is left alone."""
    ours = [number for number in numbers if signal.getsignal(number) == signal.SIG_DFL]
    for number in ours:
        signal.signal(number, _end)
    try:
        yield
    finally:
        for number in ours:
            signal.signal(number, signal.SIG_DFL)


def _end(number: int, _frame: object) -> None:
    raise SystemExit(128 + number)
