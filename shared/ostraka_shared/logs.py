"""One event, one line on stderr: JSON for machines, or aligned text where stderr is a terminal."""

import logging
import sys
from typing import Literal

import structlog

LogFormat = Literal["auto", "json", "text"]


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
    structlog.configure(
        processors=[*shared, *renderer],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.WriteLoggerFactory(sys.stderr),
        cache_logger_on_first_use=True,
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *renderer],
        )
    )
    logging.basicConfig(handlers=[handler], level=level.upper(), force=True)
    structlog.contextvars.bind_contextvars(process=process)
