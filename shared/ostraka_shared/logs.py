"""One event, one line on stderr: JSON for machines, or aligned text where stderr is a terminal."""

import json
import logging
import sys
from typing import Literal, TextIO, cast

import structlog

from ostraka_shared.log_stream import LEFT_OUT, LINE_BYTES, LossyStream

LogFormat = Literal["auto", "json", "text"]

LONG_CHARS = 800
"""Of one value in a line of JSON; a traceback may have three times as many. What is longer loses its middle."""
KEPT = ("event", "level", "process", "request", "timestamp")
"""Of a line that is too long all the same."""


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
        else [
            structlog.processors.format_exc_info,
            _shorten,
            structlog.processors.JSONRenderer(ensure_ascii=False),
            _bound,
        ]
    )
    stream = LossyStream(sys.stderr)
    structlog.configure(
        processors=[*shared, *renderer],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=lambda *_: LineLogger(stream),
        cache_logger_on_first_use=True,
    )
    handler = logging.StreamHandler(cast("TextIO", stream))
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *renderer],
        )
    )
    logging.basicConfig(handlers=[handler], level=level.upper(), force=True)
    structlog.contextvars.bind_contextvars(process=process)


class LineLogger:
    """structlog's own would hold a lock meanwhile, which a signal's handler that logs would wait for, for ever. None is
    needed: a line is one write."""

    def __init__(self, stream: LossyStream) -> None:
        self._stream = stream

    def msg(self, line: str) -> None:
        self._stream.write(line + "\n")

    debug = info = warning = error = critical = msg


def _shorten(_: object, __: str, event: structlog.typing.EventDict) -> structlog.typing.EventDict:
    for name, value in event.items():
        most = LONG_CHARS * 3 if name == "exception" else LONG_CHARS
        if isinstance(value, str) and len(value) > most:
            event[name] = f"{value[: most // 3]}{LEFT_OUT}{value[-(most - most // 3) :]}"  # a traceback's end says most
    return event


def _bound(_: object, __: str, rendered: structlog.typing.EventDict) -> str:
    """Still JSON, where it would be cut."""
    line = str(rendered)  # by now it is one, whatever structlog's types say
    if len(line.encode("utf-8", "backslashreplace")) < LINE_BYTES:
        return line
    event = json.loads(line)
    kept = {name: event[name] for name in KEPT if name in event}
    return json.dumps({**kept, "is_cut": True, "text": line[: LONG_CHARS // 2]}, ensure_ascii=False)
