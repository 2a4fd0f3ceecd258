"""One event, one line on stderr: JSON for machines, or aligned text where stderr is a terminal."""

import contextlib
import io
import logging
import select
import sys
from typing import Literal, TextIO, cast

import structlog

LogFormat = Literal["auto", "json", "text"]


PATIENCE_MS = 100
"""For a reader to catch up, once; from then on what it does not take at once is lost, until it takes some again."""


class LossyStream(io.TextIOBase):
    """What cannot be written is lost, and nothing else: no full disk, no reader of a pipe that has gone or stands still
    may end or stop a process, or a request that something was to be said of."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = _unbuffered(stream)
        self._patience_ms = PATIENCE_MS
        self._room: select.poll | None = None
        with contextlib.suppress(OSError):
            self._room = _poll(stream.fileno())

    def write(self, text: str) -> int:
        with contextlib.suppress(OSError):
            if self._has_room():
                self._stream.write(text)
        return len(text)

    def _has_room(self) -> bool:
        """Of at least 4 kB in a pipe, which most lines fit into."""
        has_room = not self._room or bool(self._room.poll(self._patience_ms))
        self._patience_ms = PATIENCE_MS if has_room else 0
        return has_room

    def flush(self) -> None:
        with contextlib.suppress(OSError):
            self._stream.flush()


def _poll(descriptor: int) -> select.poll:
    room = select.poll()
    room.register(descriptor, select.POLLOUT)
    return room


def _unbuffered(stream: TextIO) -> TextIO:
    """So that no rest of what could not be written is tried again at the process's end, which would change its exit
    code. A test's stream, which is no file, is itself."""
    try:
        raw = io.FileIO(stream.fileno(), "w", closefd=False)
    except OSError:
        return stream
    return io.TextIOWrapper(raw, encoding="utf-8", errors="backslashreplace", write_through=True)


def configure_logs(process: str, log_format: LogFormat = "auto", level: str = "info") -> None:
    """Called once, by a process's `__main__`. Lines of libraries that use `logging` come out in the same form.

    `process` names the writer in every line: "supervisor", "gateway", "worker w3".
    """
    is_text = sys.stderr.isatty() if log_format == "auto" else log_format == "text"
    stamp = structlog.processors.TimeStamper(fmt="%H:%M:%S" if is_text else "iso", utc=not is_text)
    shared: list[structlog.typing.Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        stamp,
    ]
    renderer: list[structlog.typing.Processor] = (
        [structlog.dev.ConsoleRenderer(pad_event_to=24)]
        if is_text
        else [structlog.processors.format_exc_info, structlog.processors.JSONRenderer(ensure_ascii=False)]
    )
    stream = cast("TextIO", LossyStream(sys.stderr))
    structlog.configure(
        processors=[*shared, *renderer],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.WriteLoggerFactory(stream),
        cache_logger_on_first_use=True,
    )
    handler = logging.StreamHandler(stream)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *renderer],
        )
    )
    logging.basicConfig(handlers=[handler], level=level.upper(), force=True)
    structlog.contextvars.bind_contextvars(process=process)
