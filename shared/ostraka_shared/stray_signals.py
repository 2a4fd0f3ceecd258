"""Signals that mean nothing to our processes. By default each would end one, without a word."""

import signal

import structlog

log = structlog.get_logger()

STRAY = (signal.SIGUSR1, signal.SIGUSR2, signal.SIGHUP)


def log_stray_signals() -> None:
    """And go on. Main thread only; a fork inherits it."""
    for number in STRAY:
        signal.signal(number, _log)


def _log(number: int, _frame: object) -> None:
    say_ignored(signal.Signals(number))


def say_ignored(number: signal.Signals) -> None:
    log.warning("signal_ignored", signal=number.name, hint="SIGTERM to the supervisor stops the server")
