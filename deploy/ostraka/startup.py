"""How far the start is: looked at, and said when it changes, until all workers that are wanted are ready."""

import socket
import time

import structlog

from ostraka.generation import Generation

log = structlog.get_logger()


class Startup:
    """Once it `is_over`, clients of the `listener` are answered."""

    def __init__(self, listener: socket.socket) -> None:
        self.is_over = False
        self._listener = listener
        self._begun = time.monotonic()
        self._shown: tuple[int, int] | None = None

    def look(self, generation: Generation) -> None:
        ready, wanted = _count_ready(generation), sum(not worker.is_given_up for worker in generation.workers)
        if ready is None or (ready, wanted) == self._shown:
            return
        self._shown = (ready, wanted)  # a worker given up makes those that are ready all that are wanted
        log.info("workers_loading" if ready < wanted else "workers_ready", ready=ready, of=wanted)
        if ready >= wanted:
            self.is_over = True
            log.info("listening", url=shown(self._listener), startup_s=round(time.monotonic() - self._begun, 2))


def _count_ready(generation: Generation) -> int | None:
    """The workers that are ready at every gateway, as these report; None while one says nothing. Those that were given
    up are not waited for."""
    doors = [door for door in generation.doors if not door.is_given_up]
    said = [door.report.ready_workers for door in doors if door.is_running and door.has_reported]
    return min(said) if said and len(said) == len(doors) else None


def shown(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
